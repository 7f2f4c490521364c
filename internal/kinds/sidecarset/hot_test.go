package sidecarset_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
)

// pair brings the pod into a state of a hot upgrade: the images of the halves, which of them works, and which
// are ready.
func pair(first, second, working string, readyHalves ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for i := range pod.Spec.Containers {
			switch c := &pod.Spec.Containers[i]; c.Name {
			case "proxy-1":
				c.Image = first
			case "proxy-2":
				c.Image = second
			}
		}
		sidecarsettest.Running(pod)
		all := true
		for i := range pod.Status.ContainerStatuses {
			s := &pod.Status.ContainerStatuses[i]
			s.Ready = !strings.HasPrefix(s.Name, "proxy-") || len(readyHalves) == 2 || len(readyHalves) == 1 && readyHalves[0] == s.Name
			all = all && s.Ready
		}
		sidecarsettest.Ready(pod, all)
		pod.Annotations[pub.SidecarSetWorkingHotUpgradeContainer] = sidecarset.WorkingContainers{"proxy": working}.String()
	}
}

// TestHotUpgrade: which half gets which image, and what both are told by their versions (SS-240, SS-241,
// SS-242, SS-D05).
func TestHotUpgrade(t *testing.T) {
	const one, two = "proxy-1", "proxy-2"
	tests := map[string]struct {
		state   func(*corev1.Pod)
		image   string
		action  sidecarset.Action
		changes map[string]string // images and versions
		working string
	}{
		"SS-241 the half with the empty image": {pair("proxy:1", "empty:1", one, one, two), "proxy:2", sidecarset.Upgrade,
			map[string]string{two: "proxy:2", "version/" + two: "42", "versionalt/" + two: "1", "versionalt/" + one: "42"}, two},
		"SS-240 the first half, the next time": {pair("empty:1", "proxy:1", two, one, two), "proxy:2", sidecarset.Upgrade,
			map[string]string{one: "proxy:2", "version/" + one: "42", "versionalt/" + one: "0", "versionalt/" + two: "42"}, one},
		"SS-240 no half is empty: the one that fails": {pair("proxy:0", "proxy:1", two, one), "proxy:2", sidecarset.Upgrade,
			map[string]string{two: "proxy:2", "version/" + two: "42", "versionalt/" + two: "1", "versionalt/" + one: "42"}, ""},
		"SS-240 both fail: the one that does not work": {pair("proxy:0", "proxy:1", two), "proxy:2", sidecarset.Upgrade,
			map[string]string{one: "proxy:2", "version/" + one: "42", "versionalt/" + one: "0", "versionalt/" + two: "42"}, one},
		"SS-240 the other half has the image already": {pair("proxy:2", "empty:1", one, one, two), "proxy:2", sidecarset.Upgrade,
			map[string]string{},
			""},
		"SS-D05 back to what the other half still runs": {pair("proxy:2", "proxy:bad", two, one), "proxy:2", sidecarset.Upgrade,
			map[string]string{two: "empty:1", "version/" + two: "0", "versionalt/" + one: "0"}, one},
		"SS-242 done: the other half gets the empty image": {pair("proxy:1", "proxy:2", two, one, two), "proxy:2", sidecarset.Reset,
			map[string]string{one: "empty:1", "version/" + one: "0", "versionalt/" + two: "0"}, ""},
		"SS-242 done, though the half that idles has ended": {pair("proxy:1", "proxy:2", two, two), "proxy:2", sidecarset.Reset,
			map[string]string{one: "empty:1", "version/" + one: "0", "versionalt/" + two: "0"}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set := sidecarsettest.Set(sidecarsettest.Containers(sidecarsettest.Hot("proxy", tt.image)),
				func(set *appsv1beta1.SidecarSet) { set.ResourceVersion = "42" })
			s := sidecarsettest.Snapshot(set, sidecarsettest.Set(sidecarsettest.Containers(sidecarsettest.Hot("proxy", "proxy:0"))), 1,
				sidecarsettest.Every(tt.state))
			plan := sidecarset.Make(s)
			if len(plan.Verdicts) != 1 {
				t.Fatalf("number of verdicts: got %d, want 1\n%v", len(plan.Verdicts), plan)
			} else if plan.Verdicts[0].Action != tt.action {
				t.Fatalf("action of the first verdict: got %q, want %q\n%v", plan.Verdicts[0].Action, tt.action, plan)
			}
			spec, annotations := patched(t, s)
			got := map[string]string{}
			list, _ := spec["containers"].([]any)
			for _, entry := range list {
				c := entry.(map[string]any)
				got[c["name"].(string)] = c["image"].(string)
			}
			for key, value := range annotations {
				for prefix, short := range map[string]string{pub.SidecarSetVersionPrefix: "version/",
					pub.SidecarSetVersionAltPrefix: "versionalt/"} {
					if container, ok := strings.CutPrefix(key, prefix); ok {
						got[short+container] = value
					}
				}
			}
			// What has the value already is not written.
			for key, value := range tt.changes {
				short, container, _ := strings.Cut(key, "/")
				prefix := map[string]string{"version": pub.SidecarSetVersionPrefix, "versionalt": pub.SidecarSetVersionAltPrefix}[short]
				if _, written := got[key]; !written && prefix != "" && s.Pods[0].Annotations[prefix+container] == value {
					got[key] = value
				}
			}
			if diff := cmp.Diff(tt.changes, got); diff != "" {
				t.Errorf("changes of the pod (-want +got):\n%s", diff)
			}
			working, err := sidecarset.ReadWorkingContainers(annotations[pub.SidecarSetWorkingHotUpgradeContainer])
			if err != nil {
				t.Errorf("unexpected error: %v; %v works: %v", err, working, err)
			} else if working["proxy"] != tt.working {
				t.Errorf(`working proxy: got %q, want %q; %v works: %v`, working["proxy"], tt.working, working, err)
			}
			if _, touched := annotations[pub.SidecarSetHash]; touched != (tt.action == sidecarset.Upgrade) {
				t.Errorf("SS-242: the hash is written: %v", touched)
			}
		})
	}
}

// TestHotUpgradeWaits: a pod inside a hot upgrade is not ready and takes up the budget; resets need the type
// RollingUpdate and no pause, no budget, and end the round (SS-192, SS-216, SS-220, SS-242 to SS-245).
func TestHotUpgradeWaits(t *testing.T) {
	set := func(change func(*appsv1beta1.SidecarSet)) *appsv1beta1.SidecarSet {
		return sidecarsettest.Set(sidecarsettest.Containers(sidecarsettest.Hot("proxy", "proxy:2")), change)
	}
	nothing := func(*appsv1beta1.SidecarSet) {}
	updated := func(state func(*corev1.Pod)) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			now := set(nothing)
			sidecarsettest.Stamp(now)
			pod.Annotations[pub.SidecarSetHash] = sidecarsettest.Pod(now, "x").Annotations[pub.SidecarSetHash]
			state(pod)
		}
	}
	starts, done := updated(pair("proxy:1", "proxy:2", "proxy-2", "proxy-1")),
		updated(pair("proxy:1", "proxy:2", "proxy-2", "proxy-1", "proxy-2"))
	tests := map[string]struct {
		now     *appsv1beta1.SidecarSet
		options []func(int, *corev1.Pod)
		want    []string
	}{
		"SS-244 it takes up the budget": {set(nothing), []func(int, *corev1.Pod){only(0, starts)},
			[]string{"p0 wait NotReady", "p1 wait MaxUnavailable"}},
		"SS-192 a reset ends the round": {set(nothing), []func(int, *corev1.Pod){only(0, done)},
			[]string{"p0 reset HotUpgradeDone", "p1 wait ResetFirst"}},
		"SS-242 resets need no budget": {set(sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) {
			u.MaxUnavailable,
				u.Partition = new(intstr.FromInt32(0)), new(intstr.FromInt32(2))
		})), []func(int, *corev1.Pod){sidecarsettest.Every(done)}, []string{"p0 reset HotUpgradeDone", "p1 reset HotUpgradeDone"}},
		"SS-243 not while paused": {set(sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.Paused = true })),
			[]func(int, *corev1.Pod){sidecarsettest.Every(done)}, []string{"p0 wait NotReady", "p1 wait NotReady"}},
		"SS-243 not with NotUpdate": {set(sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.Type = appsv1beta1.NotUpdateSidecarSetStrategyType })), []func(int, *corev1.Pod){sidecarsettest.Every(done)}, []string{"p0 wait NotReady", "p1 wait NotReady"}},
		"SS-242 the app is not ready yet": {set(nothing),
			[]func(int, *corev1.Pod){sidecarsettest.Every(done, sidecarsettest.NotReady, containerReady("app", false))},
			[]string{"p0 wait NotReady", "p1 wait NotReady"}},
		"SS-245 and the pods cannot be upgraded": {set(func(set *appsv1beta1.SidecarSet) {
			set.Spec.Containers[0].UpgradeStrategy.HotUpgradeEmptyImage = "empty:2"
		}),
			[]func(int, *corev1.Pod){sidecarsettest.Every(pair("proxy:1", "empty:2", "proxy-1", "proxy-1", "proxy-2"))},
			[]string{"p0 wait NotUpgradable", "p1 wait NotUpgradable"}},
		"SS-203, SS-D07 no word of which half works": {set(nothing), []func(int, *corev1.Pod){only(0,
			sidecarsettest.Annotated(pub.SidecarSetWorkingHotUpgradeContainer, "{")),
			only(1, func(pod *corev1.Pod) { pod.Spec.Containers = pod.Spec.Containers[1:] })}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			plan := sidecarset.Make(sidecarsettest.Snapshot(tt.now,
				sidecarsettest.Set(sidecarsettest.Containers(sidecarsettest.Hot("proxy", "proxy:1"))), 2, tt.options...))
			if diff := cmp.Diff(tt.want, words(plan)); diff != "" {
				t.Errorf("what is done (-want +got):\n%s\n%s", diff, plan)
			}
		})
	}
}

// TestEmptyImageOfPodsThatStay: a new hotUpgradeEmptyImage restarts nothing in pods that cannot be upgraded;
// a hot upgrade that was under way is ended with it all the same (SS-211, SS-242, SS-245).
func TestEmptyImageOfPodsThatStay(t *testing.T) {
	now := func() *appsv1beta1.SidecarSet {
		return sidecarsettest.Set(sidecarsettest.Containers(sidecarsettest.Hot("proxy", "proxy:2")), func(set *appsv1beta1.SidecarSet) {
			set.Spec.Containers[0].UpgradeStrategy.HotUpgradeEmptyImage = "empty:2"
		})
	}
	former := func() *appsv1beta1.SidecarSet {
		return sidecarsettest.Set(sidecarsettest.Containers(sidecarsettest.Hot("proxy", "proxy:1")))
	}
	plan := sidecarset.Make(sidecarsettest.Snapshot(now(), former(), 2))
	if diff := cmp.Diff([]string{"p0 wait NotUpgradable", "p1 wait NotUpgradable"}, words(plan)); diff != "" {
		t.Errorf("what is done (-want +got):\n%s\n%s", diff, plan)
	}
	if plan.Status.ReadyPods != 2 {
		t.Errorf("their empty image is not what they lack: %d are ready", plan.Status.ReadyPods)
	}
	underway := sidecarsettest.Every(pair("proxy:1", "proxy:2", "proxy-2", "proxy-1", "proxy-2"),
		sidecarsettest.Annotated(pub.SidecarSetVersionAltPrefix+"proxy-2", "1"))
	plan = sidecarset.Make(sidecarsettest.Snapshot(now(), former(), 1, underway))
	if diff := cmp.Diff([]string{"p0 reset HotUpgradeDone"}, words(plan)); diff != "" {
		t.Errorf("what is done (-want +got):\n%s\n%s", diff, plan)
	}
}

// TestResetOfFinishedPods: the standby of a pod whose application has finished is not started again (SS-242,
// SS-256).
func TestResetOfFinishedPods(t *testing.T) {
	finished := func(pod *corev1.Pod) {
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		for i := range pod.Status.ContainerStatuses {
			if s := &pod.Status.ContainerStatuses[i]; s.Name == "app" {
				s.Ready, s.State = false, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
			}
		}
	}
	half := pair("proxy:1", "proxy:2", "proxy-2", "proxy-1", "proxy-2")
	set := sidecarsettest.Set(sidecarsettest.Containers(sidecarsettest.Hot("proxy", "proxy:2")))
	s := sidecarsettest.Snapshot(set, set, 1, sidecarsettest.Every(half,
		sidecarsettest.Annotated(pub.SidecarSetVersionAltPrefix+"proxy-2", "1")))
	reset := sidecarset.Make(s)
	if diff := cmp.Diff([]string{"p0 reset HotUpgradeDone"}, words(reset)); diff != "" {
		t.Fatalf("what is done (-want +got):\n%s", diff)
	}
	done := s.Pods[0].DeepCopy()
	finished(done)
	if _, err := reset.Verdicts[0].Change(done, sidecarsettest.Now); err == nil {
		t.Error("it is reset after a conflict")
	}
	s.Pods[0] = done
	if got := sidecarset.Make(s); got.Writes() {
		t.Errorf("writes: got true, want false\n%v", got)
	}
}
