package controller

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// many returns what a manager sees of a set with n pods at rest: those of a small set that came to rest in a
// simulation, copied. Pods that were updated in place bear what is remembered of it.
func many(b testing.TB, n int, updated bool) cloneset.Snapshot {
	b.Helper()
	s := simulate(1, clonesettest.Set(1, clonesettest.Image("nginx:0")), cloneset.Features{InPlace: inplace.Options{Resize: true}})
	if err := s.Settle(100); err != nil {
		b.Fatal(err)
	}
	if updated {
		s.Edit(clonesettest.Image("nginx:1"))
		if err := s.Settle(100); err != nil {
			b.Fatal(err)
		}
	}
	snapshot, err := s.kube.Snapshot(b.Context(), s.set())
	if err != nil {
		b.Fatal(err)
	}
	snapshot.Now, snapshot.Random, snapshot.Features = s.Now(), s.Rand.IntN, s.kind.Features
	one := snapshot.Pods[0]
	snapshot.Pods = make([]*corev1.Pod, n)
	for i := range n {
		pod, id := one.DeepCopy(), fmt.Sprintf("%05d", i)
		pod.Name, pod.UID, pod.Labels[pub.CloneSetInstanceID] = setKey.Name+"-"+id, types.UID(id), id
		pod.Spec.NodeName = fmt.Sprintf("node-%d", i%50)
		snapshot.Pods[i] = pod
	}
	count := int32(n)
	set := snapshot.Set.DeepCopy()
	set.Spec.Replicas = &count
	status := &set.Status
	for _, field := range []*int32{&status.Replicas, &status.ReadyReplicas, &status.AvailableReplicas, &status.UpdatedReplicas,
		&status.UpdatedReadyReplicas, &status.UpdatedAvailableReplicas, &status.ExpectedUpdatedReplicas} {
		*field = count
	}
	snapshot.Set = set
	return *snapshot
}

// BenchmarkMake times one plan: `make perf SCENARIO=planner` keeps what it tells.
func BenchmarkMake(b *testing.B) {
	unavailable := func(most string) func(*appsv1beta1.CloneSet) {
		return clonesettest.Both(clonesettest.Image("nginx:2"),
			clonesettest.Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) { s.MaxUnavailable = new(intstr.FromString(most)) }))
	}
	for _, bench := range []struct {
		name    string
		updated bool
		change  func(*appsv1beta1.CloneSet)
		// percent of the pods are acted upon.
		percent int
	}{
		{"at rest", false, nil, 0},
		{"at rest after an update in place", true, nil, 0},
		{"rollout started, maxUnavailable 100 %", false, unavailable("100%"), 100},
		{"rollout started, maxUnavailable 10 %", false, unavailable("10%"), 10},
		{"second rollout started, maxUnavailable 10 %", true, unavailable("10%"), 10},
	} {
		for _, n := range []int{100, 1000, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", bench.name, n), func(b *testing.B) {
				snapshot := many(b, n, bench.updated)
				if bench.change != nil {
					bench.change(snapshot.Set)
					snapshot.Set.Generation++
				}
				if acted := writing(cloneset.Make(snapshot)); acted != n*bench.percent/100 {
					b.Fatalf("%d of %d pods are acted upon, not %d %%", acted, n, bench.percent)
				}
				b.ReportAllocs()
				for b.Loop() {
					cloneset.Make(snapshot)
				}
			})
		}
	}
}

// writing counts the pods that the plan writes to.
func writing(plan *cloneset.Plan) int {
	n := 0
	for _, v := range plan.Verdicts {
		if v.Action != podplan.Keep && v.Action != podplan.Wait {
			n++
		}
	}
	return n
}

// BenchmarkScaleIn times the plan that deletes all pods of a set with claims, of which others are named in
// podsToDelete.
func BenchmarkScaleIn(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			snapshot := many(b, n, false)
			set := snapshot.Set.DeepCopy()
			set.Spec.Replicas = new(int32)
			for _, pod := range snapshot.Pods {
				snapshot.Claims = append(snapshot.Claims, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-" +
					pod.Name, Labels: pod.Labels}})
				set.Spec.ScaleStrategy.PodsToDelete = append(set.Spec.ScaleStrategy.PodsToDelete, pod.Name+"-x")
			}
			snapshot.Set = set
			for b.Loop() {
				if plan := cloneset.Make(snapshot); plan.Verdicts[0].Action != podplan.Delete {
					b.Fatalf("plan.Verdicts[0].Action: got %q, want %q\n%+v", plan.Verdicts[0].Action, podplan.Delete, plan.Verdicts[0])
				}
			}
		})
	}
}
