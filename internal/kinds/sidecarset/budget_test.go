package sidecarset_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
)

// holding are limits that hold the pods of these names.
type holding struct {
	names []string
	asked []string
}

const holds = "PodUnavailableBudget web allows 0 more UPDATE: 2 of 3 pods must stay in service, and 2 do"

func (h *holding) Take(pod *corev1.Pod, by disruption.Operation) string {
	h.asked = append(h.asked, string(by)+" "+pod.Name)
	if slices.Contains(h.names, pod.Name) {
		return holds
	}
	return ""
}

// TestBudgetsHoldUpgrades shows who is asked about, by which operation, and that the budget of one pod holds
// no other (PUB-101 (part)).
func TestBudgetsHoldUpgrades(t *testing.T) {
	two := sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.MaxUnavailable = new(intstr.FromInt32(2)) })
	image := sidecarsettest.Image("proxy", "proxy:2")
	begun := sidecarsettest.Annotated(pub.SidecarSetInPlaceUpdateState,
		`{"mesh":{"revision":"bad","updateTimestamp":"2030-01-01T00:00:00Z","lastContainerStatuses":{}}}`)
	unfit := func(pod *corev1.Pod) { // was given 9 cores, which it did not get
		pod.Spec.Containers[0].Resources.Requests = sidecarsettest.Resources("cpu", "9")
		pod.Status.ContainerStatuses[0].Resources = &corev1.ResourceRequirements{Requests: sidecarsettest.Resources("cpu", "1")}
	}
	hot := func(image string) *appsv1beta1.SidecarSet {
		return sidecarsettest.Set(sidecarsettest.Containers(sidecarsettest.Hot("proxy", image)), two)
	}
	for name, tt := range map[string]struct {
		s     sidecarset.Snapshot
		held  []string
		want  []string
		asked []string
	}{
		"none is held": {sidecarsettest.Snapshot(sidecarsettest.Set(image, two), sidecarsettest.Set(), 3), nil,
			[]string{"p0 upgrade Outdated", "p1 upgrade Outdated", "p2 wait MaxUnavailable"}, []string{"UPDATE p0", "UPDATE p1"}},
		"one is held, and takes nobody's place": {sidecarsettest.Snapshot(sidecarsettest.Set(image, two), sidecarsettest.Set(), 3), []string{"p0"},
			[]string{"p0 wait PodUnavailableBudget", "p1 upgrade Outdated", "p2 upgrade Outdated"},
			[]string{"UPDATE p0", "UPDATE p1", "UPDATE p2"}},
		"a resize": {sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Sized("4"), two), sidecarsettest.Set(sidecarsettest.Sized("1")), 1),
			[]string{"p0"}, []string{"p0 wait PodUnavailableBudget"}, []string{"RESIZE p0"}},
		"a resize that restarts": {sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Sized("4"), two),
			sidecarsettest.Set(sidecarsettest.Sized("1")), 1, sidecarsettest.Every(func(pod *corev1.Pod) {
				for i := range pod.Spec.Containers {
					pod.Spec.Containers[i].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU,
						RestartPolicy: corev1.RestartContainer}}
				}
			})), nil, []string{"p0 upgrade Outdated"}, []string{"UPDATE p0"}},
		"only the record is behind, and nothing stops": {sidecarsettest.Snapshot(sidecarsettest.Set(image, two), sidecarsettest.Set(), 1,
			sidecarsettest.Every(func(pod *corev1.Pod) {
				for i := range pod.Spec.Containers {
					if pod.Spec.Containers[i].Name == "proxy" {
						pod.Spec.Containers[i].Image = "proxy:2"
					}
				}
				sidecarsettest.Running(pod)
			})), []string{"p0"}, []string{"p0 upgrade Outdated"}, nil},
		"one that waits for the resources of a former upgrade": {sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Sized("9"), image, two),
			sidecarsettest.Set(sidecarsettest.Sized("9")), 1, sidecarsettest.Every(unfit, begun)), []string{"p0"},
			[]string{"p0 wait PodUnavailableBudget"}, []string{"UPDATE p0"}},
		"a hot upgrade that is done": {sidecarsettest.Snapshot(hot("proxy:2"), hot("proxy:2"), 1,
			sidecarsettest.Every(pair("proxy:1", "proxy:2", "proxy-2", "proxy-1", "proxy-2"))), []string{"p0"},
			[]string{"p0 wait NotReady"}, []string{"UPDATE p0"}},
	} {
		t.Run(name, func(t *testing.T) {
			limits := &holding{names: tt.held}
			tt.s.Disruptions, tt.s.Features.Resize = limits, true
			plan := sidecarset.Make(tt.s)
			if diff := cmp.Diff(tt.want, words(plan)); diff != "" {
				t.Errorf("what is done (-want +got):\n%s\n%s", diff, plan)
			}
			if diff := cmp.Diff(tt.asked, limits.asked); diff != "" {
				t.Errorf("disruptions that were asked for (-want +got):\n%s", diff)
			}
			waits := slices.ContainsFunc(plan.Verdicts, func(v *sidecarset.PodVerdict) bool {
				return v.Action == sidecarset.Wait && v.Message == holds
			})
			if waits != plan.HeldByBudget {
				t.Errorf("held by a budget: got %t, want %t, as a pod waits", plan.HeldByBudget, waits)
			}
			if waits && (plan.Again <= 0 || plan.Again > time.Second) {
				t.Errorf("the next pass: got after %v, want it within 1s", plan.Again)
			}
			for _, v := range plan.Verdicts {
				if asks := slices.Contains(limits.asked, string(v.By)+" "+v.Pod.Name); v.By != "" && !asks {
					t.Errorf("%s asks by %s, but its plan did not", v.Pod.Name, v.By)
				}
			}
		})
	}
}
