package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestResizesOfSidecars: what a change of resources sends to the server, which refuses what is not
// consistent, or would change the QoS class (SS-W02).
func TestResizesOfSidecars(t *testing.T) {
	guaranteed := sidecarsettest.Every(func(pod *corev1.Pod) {
		pod.Spec.Containers[1].Resources = corev1.ResourceRequirements{Requests: sidecarsettest.Resources("cpu", "1", "memory", "1Gi"),
			Limits: sidecarsettest.Resources("cpu", "1", "memory", "1Gi")}
	})
	for name, tt := range map[string]struct {
		former, now func(*appsv1beta1.SidecarSet)
		has         func(int, *corev1.Pod)
		more        func(int, *corev1.Pod)
		// want are the new resources of the sidecar; nil if it cannot be resized.
		want *corev1.ResourceRequirements
	}{
		"a limit alone, up": {sidecarsettest.Asks(nil, sidecarsettest.Resources("cpu", "1")),
			sidecarsettest.Asks(nil, sidecarsettest.Resources("cpu", "2")),
			sidecarsettest.Given(sidecarsettest.Resources("cpu", "1"), sidecarsettest.Resources("cpu", "1")), nil,
			&corev1.ResourceRequirements{Requests: sidecarsettest.Resources("cpu", "2"), Limits: sidecarsettest.Resources("cpu", "2")}},
		"a limit alone, down": {sidecarsettest.Asks(nil, sidecarsettest.Resources("cpu", "1")),
			sidecarsettest.Asks(nil, sidecarsettest.Resources("cpu", "500m")),
			sidecarsettest.Given(sidecarsettest.Resources("cpu", "1"), sidecarsettest.Resources("cpu", "1")), nil,
			&corev1.ResourceRequirements{Requests: sidecarsettest.Resources("cpu", "500m"), Limits: sidecarsettest.Resources("cpu", "500m")}},
		"limits alone of a Guaranteed pod": {sidecarsettest.Asks(nil, sidecarsettest.Resources("cpu", "1", "memory", "1Gi")),
			sidecarsettest.Asks(nil, sidecarsettest.Resources("cpu", "2", "memory", "1Gi")),
			sidecarsettest.Given(sidecarsettest.Resources("cpu", "1", "memory", "1Gi"), sidecarsettest.Resources("cpu", "1", "memory", "1Gi")),
			guaranteed,
			&corev1.ResourceRequirements{Requests: sidecarsettest.Resources("cpu", "2", "memory", "1Gi"),
				Limits: sidecarsettest.Resources("cpu", "2", "memory", "1Gi")}},
		"a Guaranteed pod stays so": {sidecarsettest.Asks(sidecarsettest.Resources("cpu", "1", "memory", "1Gi"),
			sidecarsettest.Resources("cpu", "1", "memory", "1Gi")),
			sidecarsettest.Asks(sidecarsettest.Resources("cpu", "1", "memory", "1Gi"), sidecarsettest.Resources("cpu", "2", "memory", "1Gi")),
			sidecarsettest.Given(sidecarsettest.Resources("cpu", "1", "memory", "1Gi"), sidecarsettest.Resources("cpu", "1", "memory", "1Gi")),
			guaranteed, nil},
		"memory alone, and an autoscaler gave cpu": {sidecarsettest.Asks(sidecarsettest.Resources("cpu", "100m", "memory", "1Gi"), nil),
			sidecarsettest.Asks(sidecarsettest.Resources("cpu", "100m", "memory",
				"2Gi"), nil), sidecarsettest.Given(sidecarsettest.Resources("cpu", "500m", "memory", "1Gi"), nil), nil,
			&corev1.ResourceRequirements{Requests: sidecarsettest.Resources("cpu", "500m", "memory", "2Gi")}},
		"memory alone, and an autoscaler gave cpu and its limit": {sidecarsettest.Asks(nil,
			sidecarsettest.Resources("cpu", "1", "memory", "1Gi")),
			sidecarsettest.Asks(nil, sidecarsettest.Resources("cpu", "1", "memory", "2Gi")),
			sidecarsettest.Given(sidecarsettest.Resources("cpu", "3", "memory", "1Gi"), sidecarsettest.Resources("cpu", "3", "memory", "1Gi")), nil,
			&corev1.ResourceRequirements{Requests: sidecarsettest.Resources("cpu", "3", "memory", "2Gi"),
				Limits: sidecarsettest.Resources("cpu", "3", "memory", "2Gi")}},
		"cpu, and an autoscaler gave cpu": {sidecarsettest.Asks(sidecarsettest.Resources("cpu", "100m"), nil),
			sidecarsettest.Asks(sidecarsettest.Resources("cpu", "200m"), nil), sidecarsettest.Given(sidecarsettest.Resources("cpu", "500m"), nil),
			nil,
			&corev1.ResourceRequirements{Requests: sidecarsettest.Resources("cpu", "200m")}},
		"a limit below the request that an autoscaler gave": {sidecarsettest.Asks(sidecarsettest.Resources("cpu", "100m"),
			sidecarsettest.Resources("cpu", "1")), sidecarsettest.Asks(sidecarsettest.Resources("cpu", "100m"),
			sidecarsettest.Resources("cpu", "500m")), sidecarsettest.Given(sidecarsettest.Resources("cpu", "800m"),
			sidecarsettest.Resources("cpu", "1")), nil,
			&corev1.ResourceRequirements{Requests: sidecarsettest.Resources("cpu", "100m"), Limits: sidecarsettest.Resources("cpu", "500m")}},
		"a request above the limit that an autoscaler gave": {sidecarsettest.Asks(sidecarsettest.Resources("cpu", "100m"),
			sidecarsettest.Resources("cpu", "1")), sidecarsettest.Asks(sidecarsettest.Resources("cpu", "600m"),
			sidecarsettest.Resources("cpu", "1")), sidecarsettest.Given(sidecarsettest.Resources("cpu", "100m"),
			sidecarsettest.Resources("cpu", "500m")), nil,
			&corev1.ResourceRequirements{Requests: sidecarsettest.Resources("cpu", "600m"), Limits: sidecarsettest.Resources("cpu", "1")}},
		"nothing that the pod has not": {sidecarsettest.Asks(sidecarsettest.Resources("cpu", "100m"), nil),
			sidecarsettest.Asks(sidecarsettest.Resources("cpu", "500m"), nil), sidecarsettest.Given(sidecarsettest.Resources("cpu", "500m"), nil),
			nil,
			&corev1.ResourceRequirements{Requests: sidecarsettest.Resources("cpu", "500m")}},
	} {
		t.Run(name, func(t *testing.T) {
			options := []func(int, *corev1.Pod){tt.has}
			if tt.more != nil {
				options = append(options, tt.more)
			}
			s := sidecarsettest.Snapshot(sidecarsettest.Set(tt.now, sidecarsettest.Image("proxy", "proxy:2")), sidecarsettest.Set(tt.former), 1,
				options...)
			s.Features.Resize = true
			plan := sidecarset.Make(s)
			v := plan.Verdicts[0]
			if tt.want == nil || v.Action != sidecarset.Upgrade {
				if v.Reason != sidecarset.ReasonNotUpgradable {
					t.Errorf("reason: got %q, want %q\n%s\n%s", v.Reason, sidecarset.ReasonNotUpgradable, v.Action,
						v.Message)
				}
				if tt.want != nil {
					t.Errorf("want: got %v, want nil\n%s\n%s", tt.want, v.Action, v.Message)
				}
				return
			}
			patches, err := v.Change(v.Pod, sidecarsettest.Now)
			if err != nil {
				t.Fatal(err)
			}
			if got := resized(t, v.Pod, patches); !cmp.Equal(*tt.want, got) {
				t.Errorf("want: got %v, want %v\n%q", *tt.want, got, cmp.Diff(*tt.want, got))
			}
		})
	}
}

// resized is the sidecar after the patches.
func resized(t *testing.T, pod *corev1.Pod, patches []*podpatch.Patch) corev1.ResourceRequirements {
	t.Helper()
	s := simulate(1, sidecarsettest.Set(), 0)
	pod = pod.DeepCopy()
	pod.UID = ""
	s.Store(podKey(pod.Name), pod)
	for _, patch := range patches {
		if patch.Empty() {
			continue
		}
		now := s.AllPods()[0]
		body, err := patch.JSON(now)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Patch(podKey(pod.Name), body, patch.Subresource()); err != nil {
			t.Fatal(err)
		}
	}
	if image := sidecarset.ImageOf(s.AllPods()[0], "proxy"); image != "proxy:2" {
		t.Errorf("the image is held back: %s", image)
	}
	return s.AllPods()[0].Spec.Containers[0].Resources
}

// TestAResetForgetsNoResize: the end of a hot upgrade is no end of an upgrade that was overtaken after it
// gave the pod resources (SS-231, SS-242).
func TestAResetForgetsNoResize(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(sidecarsettest.AllAtOnce, sidecarsettest.Containers(sidecarsettest.Hot("proxy", "proxy:1"))), 1)
	if err := s.Settle(50); err != nil {
		t.Fatal(err)
	}
	refused := true
	s.Refused = func(w simulation.Write) bool { // the reset
		return refused && w.Key.Name == "web-0" && w.Subresource == "" && sidecarset.ImageOf(s.AllPods()[0], "proxy-2") == "proxy:2"
	}
	s.change(sidecarsettest.Image("proxy", "proxy:2"))
	for range 20 {
		s.Round()
	}
	s.Change(podKey("web-0"), func(o client.Object) {
		states, err := sidecarset.ReadStates(o.GetAnnotations()[pub.SidecarSetInPlaceUpdateState])
		if err != nil {
			t.Fatal(err)
		}
		state := states["mesh"]
		state.Resizing = []string{"overtaken"}
		states["mesh"] = state
		o.GetAnnotations()[pub.SidecarSetInPlaceUpdateState] = states.String()
	})
	s.change(sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) {
		u.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"no": "pod"}}
	}))
	refused = false
	for range 20 {
		s.Round()
		s.Pass(time.Second)
	}
	pod := s.AllPods()[0]
	if got := sidecarset.ImageOf(pod, "proxy-1"); got != "empty:1" {
		t.Errorf("image of proxy-1: got %q, want %q\n%s", got, "empty:1", s.describe())
	}
	if !strings.Contains(pod.Annotations[pub.SidecarSetInPlaceUpdateState], "overtaken") {
		t.Errorf("annotation sidecar set in place update state of the pod: got %q, want it to contain %q\n%s",
			pod.Annotations[pub.SidecarSetInPlaceUpdateState], "overtaken", s.describe())
	}
}

// TestPodsThatWaitForTheirResourcesAreUpgradedOneByOne: pods whose node has not given a sidecar its resources
// yet serve all the same. A new image restarts their sidecar within maxUnavailable, not in all of them at
// once (SS-219, SS-W02).
func TestPodsThatWaitForTheirResourcesAreUpgradedOneByOne(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(sidecarsettest.Sized("1"),
		sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.MaxUnavailable = new(intstr.FromString("100%")) })), 6)
	s.features.Resize, s.Node.Unfit = true, map[string]bool{}
	s.Start()
	if err := s.Settle(300); err != nil {
		t.Fatal(err)
	}
	for _, pod := range s.AllPods() {
		s.Node.Unfit[string(pod.UID)] = true
	}
	s.change(sidecarsettest.Sized("9"))
	if err := s.Settle(300); err != nil {
		t.Fatal(err)
	}
	for _, pod := range s.AllPods() {
		if !readiness.Ready(pod) {
			t.Fatalf("the pod is ready: got false, want true\n%s", s.describe())
		} else if got := pod.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "9" {
			t.Fatalf("CPU of the requests of the resources: got %q, want %q\n%s", got, "9", s.describe())
		}
	}
	most := 0
	s.AfterWrite = func(simulation.Write) {
		out := 0
		for _, pod := range s.AllPods() {
			if !readiness.Ready(pod) || pod.Status.ContainerStatuses[0].Image != sidecarset.ImageOf(pod, "proxy") {
				out++
			}
		}
		most = max(most, out)
	}
	s.change(sidecarsettest.Image("proxy", "proxy:2"), sidecarsettest.Sized("2"),
		sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.MaxUnavailable = new(intstr.FromInt32(1)) }))
	for range 20 {
		s.Round()
	}
	s.Node.Unfit = nil
	if err := s.Settle(300); err != nil {
		t.Fatal(err)
	}
	status := s.set().Status
	if most != 1 {
		t.Errorf("most: got %d, want 1; %d pods at once, maxUnavailable 1; %+v", most, most, status)
	}
	if status.UpdatedReadyPods != 6 {
		t.Errorf("updated and ready pods: got %d, want 6; %d pods at once, maxUnavailable 1; %+v",
			status.UpdatedReadyPods, most, status)
	}
}
