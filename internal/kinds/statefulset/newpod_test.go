package statefulset

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/cputime"
)

// TestNewPodsHaveIdentityClaimsAndLabels shows ASTS-096, ASTS-097, ASTS-098, ASTS-100, ASTS-101, ASTS-102 and
// ASTS-105.
func TestNewPodsHaveIdentityClaimsAndLabels(t *testing.T) {
	w := newWorld(t, 3, withClaims, policy(possible), reserve("0-4"))
	document := `{"metadata":{"labels":{"app":"web","tier":"db"},"annotations":{"note":"n"},"finalizers":["example.org/drain"]},
		"spec":{"hostname":"mine","volumes":[{"name":"data","emptyDir":{}},{"name":"tmp","emptyDir":{}}],
		"containers":[{"name":"main","image":"a:1"}]}}`
	if err := w.Set.Spec.Template.UnmarshalJSON([]byte(document)); err != nil {
		t.Fatal(err)
	}
	claims := `[{"metadata":{"name":"data","labels":{"app":"x","disk":"ssd"},"annotations":{"class":"gold"}},
		"spec":{"accessModes":["ReadWriteOnce"]}}]`
	if err := w.Set.Spec.VolumeClaimTemplates.UnmarshalJSON([]byte(claims)); err != nil {
		t.Fatal(err)
	}
	plan := Make(w.Snapshot)
	if len(plan.Create) != 1 {
		t.Fatalf("number created: got %d, want 1\n%v", len(plan.Create), plan)
	}
	pod, claim := &corev1.Pod{}, &corev1.PersistentVolumeClaim{}
	for document, into := range map[*map[string]any]any{&plan.Create[0].Pod: pod, &plan.Create[0].Claims[0]: claim} {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(*document, into); err != nil {
			t.Fatal(err)
		}
	}
	yes := true
	want := metav1.ObjectMeta{Namespace: "shop", Name: "web-5", GenerateName: "web-", Finalizers: []string{"example.org/drain"},
		Labels: map[string]string{"app": "web", "tier": "db", "statefulset.kubernetes.io/pod-name": "web-5",
			"apps.kubernetes.io/pod-index": "5", pub.ControllerRevisionHash: plan.NewRevision.Name, pub.LifecycleState: "Normal"},
		Annotations: map[string]string{"note": "n", pub.LifecycleTimestamp: planTime.Format(time.RFC3339)},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "StatefulSet", Name: "web", UID: "set",
			Controller: &yes, BlockOwnerDeletion: &yes}}}
	if diff := cmp.Diff(want, pod.ObjectMeta); diff != "" {
		t.Errorf("metadata of the pod (-want +got):\n%s", diff)
	}
	if pod.Spec.Hostname != "web-5" {
		t.Errorf("hostname of the pod: got %q, want %q", pod.Spec.Hostname, "web-5")
	}
	if pod.Spec.Subdomain != "web" {
		t.Errorf("subdomain of the pod: got %q, want %q", pod.Spec.Subdomain, "web")
	}
	volumes := []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
		ClaimName: "data-web-5"}}}, {Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	if diff := cmp.Diff(volumes, pod.Spec.Volumes); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
	wantClaim := metav1.ObjectMeta{Namespace: "shop", Name: "data-web-5", Labels: map[string]string{"app": "web", "disk": "ssd"},
		Annotations: map[string]string{"class": "gold"}}
	if diff := cmp.Diff(wantClaim, claim.ObjectMeta); diff != "" {
		t.Errorf("metadata of the claim (-want +got):\n%s", diff)
	}
}

// TestAPodThatItsHookHoldsBeginsInPreparingNormal shows ASTS-221 (part): a pod that its preNormal hook holds
// begins in PreparingNormal.
func TestAPodThatItsHookHoldsBeginsInPreparingNormal(t *testing.T) {
	for name, tt := range map[string]struct {
		hook *pub.LifecycleHook
		want pub.LifecycleStateType
	}{
		"no hook":              {nil, pub.LifecycleStateNormal},
		"hooked by the labels": {&pub.LifecycleHook{LabelsHandler: map[string]string{"app": "web"}}, pub.LifecycleStateNormal},
		"not hooked":           {&pub.LifecycleHook{LabelsHandler: map[string]string{"warm": "yes"}}, pub.LifecycleStatePreparingNormal},
		"not by its finalizer": {&pub.LifecycleHook{FinalizersHandler: []string{"example.org/warm"}}, pub.LifecycleStatePreparingNormal},
	} {
		w := newWorld(t, 1, func(set *appsv1beta1.StatefulSet) { set.Spec.Lifecycle = &pub.Lifecycle{PreNormal: tt.hook} })
		metadata, _ := Make(w.Snapshot).Create[0].Pod["metadata"].(map[string]any)
		labels, _ := metadata["labels"].(map[string]any)
		if labels[pub.LifecycleState] != string(tt.want) {
			t.Errorf("%s: label lifecycle state: got %v, want %q\n%v", name, labels[pub.LifecycleState],
				string(tt.want), labels)
		}
	}
}

// A wrong number costs no more than the pods of one plan; those that exist far up are slots all the same.
func TestAWrongNumberCostsNoMoreThanOnePlan(t *testing.T) {
	w := newWorld(t, math.MaxInt32-10, inParallel, reserve("3-1000000"), policy(possible), maxUnavailable(1))
	w.at("a:1")
	w.pod(1, "a:1")
	w.pod(2_000_000_000, "a:1", notReady)
	w.at("a:2")
	spent := cputime.Start(t)
	plan := Make(w.Snapshot)
	if len(plan.Create) != maxCreate {
		t.Errorf("number created: got %d, want %d; %d pods, the first %s, %s, %s", len(plan.Create), maxCreate,
			len(plan.Create),
			plan.Create[0].Name, plan.Create[1].Name, plan.Create[2].Name)
	} else if plan.Create[0].Name != "web-0" {
		t.Errorf("name of the first created pod: got %q, want %q; %d pods, the first %s, %s, %s",
			plan.Create[0].Name, "web-0", len(plan.Create),
			plan.Create[0].Name, plan.Create[1].Name, plan.Create[2].Name)
	} else if plan.Create[2].Name != "web-1000001" {
		t.Errorf("name of the third created pod: got %q, want %q; %d pods, the first %s, %s, %s",
			plan.Create[2].Name, "web-1000001", len(plan.Create),
			plan.Create[0].Name, plan.Create[1].Name, plan.Create[2].Name)
	}
	if took := spent(); took > 5*time.Second {
		t.Errorf("time that it took: got %v, want at most %v", took, 5*time.Second)
	}
	v := plan.Verdicts[1]
	if v.Pod.Name != "web-2000000000" {
		t.Errorf("name of the pod: got %q, want %q\n%+v", v.Pod.Name, "web-2000000000", v)
	}
	if v.Action != "update in place" {
		t.Errorf("action: got %q, want %q\n%+v", v.Action, "update in place", v)
	}
	if v := plan.Verdicts[0]; v.Action != "wait" { // all the others are missing
		t.Errorf("what is done to the first pod: got %+v, want it to wait", v)
	}
	if names := w.Vacant(); len(names) != maxCreate {
		t.Errorf("number of names: got %d, want %d; %d vacant, the first %s", len(names), maxCreate, len(names),
			names[0])
	} else if names[0] != "web-0" {
		t.Errorf("first name: got %q, want %q; %d vacant, the first %s", names[0], "web-0", len(names), names[0])
	}
}

// TestManyReplicasOfMuch: nor does a wrong number cost much where each pod has hundreds of claims, or very
// many labels. The documents of one plan took gigabytes, and each manager that took over did it again.
func TestManyReplicasOfMuch(t *testing.T) {
	claims, labels := []string{}, []string{`"app":"web"`}
	for i := range 300 {
		claims = append(claims, fmt.Sprintf(`{"metadata":{"name":"c%d"},"spec":{"accessModes":["ReadWriteOnce"]}}`, i))
	}
	for i := range 50_000 {
		labels = append(labels, fmt.Sprintf(`"l%d":""`, i))
	}
	for name, tt := range map[string]struct {
		labels []string
		claims string
		most   int
	}{
		"claims": {labels[:1], strings.Join(claims, ","), 6},
		"labels": {labels, "", 16},
		"both":   {labels, strings.Join(claims, ","), 6},
		"a large claim": {labels[:1], `{"metadata":{"name":"c","annotations":{` + strings.Join(labels, ",") +
			`}},"spec":{"accessModes":["ReadWriteOnce"]}}`, 16},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, math.MaxInt32, inParallel)
			template := `{"metadata":{"labels":{` + strings.Join(tt.labels, ",") + `}},"spec":{"containers":[{"name":"main","image":"a:1"}]}}`
			if err := errors.Join(w.Set.Spec.Template.UnmarshalJSON([]byte(template)),
				w.Set.Spec.VolumeClaimTemplates.UnmarshalJSON([]byte("["+tt.claims+"]"))); err != nil {
				t.Fatal(err)
			}
			w.Revisions = append(w.Revisions, Make(w.Snapshot).NewRevision)
			setTemplate(w.Set, "a:2") // pods within the partition are large still
			partition(math.MaxInt32)(w.Set)
			w.Set.Status.CurrentRevision = w.Revisions[0].Name
			if n := len(Make(w.Snapshot).Create); n == 0 {
				t.Errorf("number created: got %d, want another value", n)
			} else if n > tt.most {
				t.Errorf("number created: got %d, want at most %d", n, tt.most)
			} else if got := Make(w.Snapshot).Create[0].Name; got != "web-0" {
				t.Errorf("name of the first created pod: got %q, want %q; %d pods", got, "web-0", n)
			}
			if n := len(w.ClaimNames()); n > maxCreate {
				t.Errorf("%d claims are looked for", n)
			}
		})
	}
}

// TestClaimNames are those of slots and of condemned pods.
func TestClaimNames(t *testing.T) {
	w := newWorld(t, 2, withClaims)
	w.at("a:1")
	w.pod(1, "a:1")
	w.pod(7, "a:1")
	if diff := cmp.Diff([]string{"data-web-0", "data-web-1", "data-web-7"}, w.ClaimNames()); diff != "" {
		t.Errorf("claim names (-want +got):\n%s", diff)
	}
	w.Set.Spec.ReserveOrdinals = reserved("x")
	if got := len(w.ClaimNames()); got != 0 {
		t.Errorf("ordinals that cannot be read have slots: number of claim names: got %d, want 0", got)
	}
	if got := len(w.Vacant()); got != 0 {
		t.Errorf("ordinals that cannot be read have slots: number of vacant names: got %d, want 0", got)
	}
}

// TestPodsAreAdoptedGivenUpOrGetTheirIdentityBack shows ASTS-070 (part) and ASTS-099: who is adopted, given
// up, or gets its identity back.
func TestPodsAreAdoptedGivenUpOrGetTheirIdentityBack(t *testing.T) {
	w := newWorld(t, 4, inParallel)
	w.at("a:1")
	all(w, "a:1", 4)
	orphan, other, strange := w.Pods[0], w.Pods[1], w.Pods[2]
	orphan.OwnerReferences = nil
	w.Pods, w.Orphans = w.Pods[1:], []*corev1.Pod{orphan}
	other.Labels["app"] = "else"
	delete(strange.Labels, appsv1.StatefulSetPodNameLabel)
	named := strange.DeepCopy()
	named.Name, named.UID = "web-01", "named"
	w.Pods = append(w.Pods, named)
	w.expect("adopt 0", "release 1", "release 01",
		"2: label apps.kubernetes.io/pod-index=2, label statefulset.kubernetes.io/pod-name=web-2")
	w.Features.PodIndexLabel = false
	delete(w.Pods[2].Labels, appsv1.PodIndexLabel) // alone it is not missed
	w.expect("adopt 0", "release 1", "release 01", "2: label statefulset.kubernetes.io/pod-name=web-2")
}

// TestSetOf finds the set that a pod can be of by its name.
func TestSetOf(t *testing.T) {
	for pod, want := range map[string]string{"web-0": "web", "my-web-12": "my-web", "web": "", "web-": "", "web-01": "", "web-x": "",
		"web--1": "web-", "web-2147483648": "", "web-2147483647": "web", "-1": ""} {
		if got := SetOf(pod); got != want {
			t.Errorf("%s: %q, want %q", pod, got, want)
		}
	}
}

// TestClaimsOfPendingPods shows ASTS-104: what somebody deleted is made again for a pod that waits for it.
func TestClaimsOfPendingPods(t *testing.T) {
	w := newWorld(t, 2, withClaims)
	w.at("a:1")
	w.pod(0, "a:1")
	w.pod(1, "a:1", pending)
	w.Claims = map[string]*corev1.PersistentVolumeClaim{}
	plan := Make(w.Snapshot)
	if len(plan.CreateClaims) != 1 {
		t.Errorf("number of created claims: got %d, want 1\n%+v", len(plan.CreateClaims), plan.CreateClaims)
	} else if len(plan.CreateClaims[0].Claims) != 1 {
		t.Errorf("number of claims of the first created claim: got %d, want 1\n%+v",
			len(plan.CreateClaims[0].Claims), plan.CreateClaims)
	} else if plan.CreateClaims[0].Name != "web-1" {
		t.Errorf("name of the first created claim: got %q, want %q\n%+v", plan.CreateClaims[0].Name, "web-1",
			plan.CreateClaims)
	}
	metadata, _ := plan.CreateClaims[0].Claims[0]["metadata"].(map[string]any)
	if metadata["name"] != "data-web-1" {
		t.Errorf("name: got %v, want %q\n%v", metadata["name"], "data-web-1", metadata)
	}
}

// TestClaimsThatGo are waited for (ASTS-103 (part), ASTS-264).
func TestClaimsThatGo(t *testing.T) {
	const keep, remove = appsv1beta1.RetainStatefulSetClaims, appsv1beta1.DeleteStatefulSetClaims
	stale := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: "former"}}
	for name, tt := range map[string]struct {
		scaled appsv1beta1.StatefulSetClaimRetention
		change func(*corev1.PersistentVolumeClaim)
		want   []string
	}{
		"it goes":                     {keep, func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: planTime} }, nil},
		"it is about to":              {remove, func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = stale }, nil},
		"it is kept now":              {keep, func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = stale }, []string{"+0 a:1", "owners 0 []"}},
		"it is another pod's as well": {remove, func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = stale; c.OwnerReferences[0].Name = "web-1" }, []string{"+0 a:1"}},
		"it has nobody":               {remove, func(c *corev1.PersistentVolumeClaim) {}, []string{"+0 a:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, withClaims, func(set *appsv1beta1.StatefulSet) {
				set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1beta1.StatefulSetClaimRetentionPolicy{WhenDeleted: keep, WhenScaled: tt.scaled}
			})
			w.at("a:1")
			stale[0].Name = "web-0"
			tt.change(w.claim(0))
			w.expect(tt.want...)
			if plan := Make(w.Snapshot); (plan.ClaimsAwaited != "") != (tt.want == nil) {
				t.Errorf(`claims are awaited: got %t, want %t; waits for %q, again after %s`, plan.ClaimsAwaited != "",
					tt.want == nil,
					plan.ClaimsAwaited, plan.After)
			} else if tt.want == nil && plan.After == 0 {
				t.Errorf("time to the next pass: got %v, want another value; waits for %q, again after %s", plan.After,
					plan.ClaimsAwaited, plan.After)
			}
		})
	}
}

// BenchmarkPlan is a plan for 10,000 pods that are updated.
func BenchmarkPlan(b *testing.B) {
	w := newWorld(&testing.T{}, 10_000, inParallel, withClaims, policy(possible), maxUnavailable(1000))
	w.at("a:1")
	w.at("a:2")
	all(w, "a:1", 10_000)
	for b.Loop() {
		if plan := Make(w.Snapshot); len(plan.Verdicts) != 10_000 {
			b.Fatalf("len(plan.Verdicts): got %d, want 10_000", len(plan.Verdicts))
		}
	}
}
