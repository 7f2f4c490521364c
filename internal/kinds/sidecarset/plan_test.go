package sidecarset_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
)

// words are the verdicts in brief.
func words(plan *sidecarset.Plan) []string {
	var all []string
	for _, v := range plan.Verdicts {
		all = append(all, fmt.Sprintf("%s %s %s", v.Pod.Name, v.Action, v.Reason))
	}
	slices.Sort(all)
	return all
}

func only(n int, options ...func(*corev1.Pod)) func(int, *corev1.Pod) {
	return func(i int, pod *corev1.Pod) {
		if i == n {
			sidecarsettest.Every(options...)(i, pod)
		}
	}
}

func statusImage(image string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for i := range pod.Status.ContainerStatuses {
			if pod.Status.ContainerStatuses[i].Name == "proxy" {
				pod.Status.ContainerStatuses[i].Image = image
			}
		}
	}
}

func containerReady(container string, is bool) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for i := range pod.Status.ContainerStatuses {
			if pod.Status.ContainerStatuses[i].Name == container {
				pod.Status.ContainerStatuses[i].Ready = is
			}
		}
	}
}

func TestWhichPodsAreUpgraded(t *testing.T) {
	two := sidecarsettest.Image("proxy", "proxy:2")
	rolling := func(change func(*appsv1beta1.SidecarSetUpdateStrategy)) *appsv1beta1.SidecarSet {
		return sidecarsettest.Set(two, sidecarsettest.Strategy(change))
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}
	tests := map[string]struct {
		now     *appsv1beta1.SidecarSet
		pods    int
		options []func(int, *corev1.Pod)
		want    []string
	}{
		"SS-218 one at a time by default": {sidecarsettest.Set(two), 3, nil,
			[]string{"p0 upgrade Outdated", "p1 wait MaxUnavailable", "p2 wait MaxUnavailable"}},
		"SS-218, SS-D06 percentages of maxUnavailable are rounded up": {rolling(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.MaxUnavailable = new(intstr.FromString("34%")) }), 3, nil,
			[]string{"p0 upgrade Outdated", "p1 upgrade Outdated", "p2 wait MaxUnavailable"}},
		"SS-219 not ready pods are free of charge": {sidecarsettest.Set(two), 3, []func(int, *corev1.Pod){only(2, sidecarsettest.NotReady)},
			[]string{"p0 upgrade Outdated", "p1 wait MaxUnavailable", "p2 upgrade Outdated"}},
		"SS-219 with maxUnavailable 0 only not ready pods": {rolling(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.MaxUnavailable = new(intstr.FromInt32(0)) }), 2, []func(int, *corev1.Pod){only(1, sidecarsettest.NotReady)},
			[]string{"p0 wait MaxUnavailable", "p1 upgrade Outdated"}},
		"SS-217 partition keeps the last": {rolling(func(u *appsv1beta1.SidecarSetUpdateStrategy) {
			u.Partition,
				u.MaxUnavailable = new(intstr.FromInt32(2)), new(intstr.FromInt32(9))
		}), 3, nil,
			[]string{"p0 upgrade Outdated", "p1 wait Partition", "p2 wait Partition"}},
		"SS-217 a percentage leaves one to move": {rolling(func(u *appsv1beta1.SidecarSetUpdateStrategy) {
			u.Partition,
				u.MaxUnavailable = new(intstr.FromString("99%")), new(intstr.FromInt32(9))
		}), 3, nil,
			[]string{"p0 upgrade Outdated", "p1 wait Partition", "p2 wait Partition"}},
		"SS-217 100% keeps all": {rolling(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.Partition = new(intstr.FromString("100%")) }), 2, nil,
			[]string{"p0 wait Partition", "p1 wait Partition"}},
		"SS-217, SS-D23 what waits does not fill the partition": {rolling(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.Partition = new(intstr.FromInt32(1)) }), 2,
			[]func(int, *corev1.Pod){only(0, sidecarsettest.Annotated(pub.SidecarSetHashWithoutImage,
				`{"mesh":"other"}`))}, []string{"p0 wait NotUpgradable", "p1 wait Partition"}},
		"SS-210 the selector of updates": {rolling(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.Selector = selector }), 2,
			[]func(int, *corev1.Pod){only(1, sidecarsettest.Labelled("canary", "yes"))},
			[]string{"p0 wait NotSelected", "p1 upgrade Outdated"}},
		"SS-210 one that cannot be used selects none": {rolling(func(u *appsv1beta1.SidecarSetUpdateStrategy) {
			u.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
		}), 1, nil, []string{"p0 wait NotSelected"}},
		"SS-211 pods outside the selector are not examined": {rolling(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.Selector = selector }), 1,
			[]func(int, *corev1.Pod){sidecarsettest.Every(sidecarsettest.Annotated(pub.SidecarSetHashWithoutImage,
				`{"mesh":"other"}`))}, []string{"p0 wait NotSelected"}},
		"SS-220 paused": {rolling(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.Paused = true }), 1, nil,
			[]string{"p0 wait Paused"}},
		"SS-192 NotUpdate": {rolling(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.Type = appsv1beta1.NotUpdateSidecarSetStrategyType }), 1, nil, []string{"p0 wait NotUpdate"}},
		"SS-212 an earlier upgrade under way": {sidecarsettest.Set(two), 1, []func(int, *corev1.Pod){sidecarsettest.Every(
			sidecarsettest.Annotated(pub.SidecarSetInPlaceUpdateState,
				`{"mesh":{"lastContainerStatuses":{"proxy":{"imageID":"id:proxy:1"}}}}`), statusImage("proxy:0"))},
			[]string{"p0 wait Upgrading"}},
		"SS-212 a failing one is rolled over": {sidecarsettest.Set(two), 1,
			[]func(int, *corev1.Pod){sidecarsettest.Every(sidecarsettest.NotReady, containerReady("proxy", false),
				sidecarsettest.Annotated(pub.SidecarSetInPlaceUpdateState,
					`{"mesh":{"lastContainerStatuses":{"proxy":{"imageID":"id:proxy:1"}}}}`), statusImage("proxy:0"))},
			[]string{"p0 upgrade Outdated"}},
		"SS-182 records of old releases are read": {sidecarsettest.Set(two), 1, []func(int, *corev1.Pod){func(_ int, pod *corev1.Pod) {
			for _, key := range []string{pub.SidecarSetHash, pub.SidecarSetHashWithoutImage} {
				records, _ := sidecarset.ReadRecords(pod.Annotations[key])
				pod.Annotations[key] = fmt.Sprintf(`{"mesh":%q}`, records["mesh"].Hash)
			}
		}}, []string{"p0 upgrade Outdated"}},
		"SS-D07 records that nobody can read": {sidecarsettest.Set(two), 1,
			[]func(int, *corev1.Pod){sidecarsettest.Every(sidecarsettest.Annotated(pub.SidecarSetHash, `{`))},
			[]string{"p0 wait UnreadableRecord"}},
		"SS-D07 metadata that cannot be merged": {sidecarsettest.Set(two, func(set *appsv1beta1.SidecarSet) {
			set.Spec.PatchPodMetadata = []appsv1beta1.SidecarSetPatchPodMetadata{{PatchPolicy: appsv1beta1.SidecarSetMergePatchJSONPatchPolicy, Annotations: map[string]string{"j": `{"a":1}`}}}
		}), 1, []func(int, *corev1.Pod){sidecarsettest.Every(sidecarsettest.Annotated("j", "text"))}, []string{"p0 wait MetadataNotMergeable"}},
		"SS-256 the sidecar of a job that is done": {sidecarsettest.Set(two), 2,
			[]func(int, *corev1.Pod){sidecarsettest.Every(func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyNever }),
				only(0, func(pod *corev1.Pod) {
					pod.Status.ContainerStatuses[1].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
				})}, []string{"p0 wait Finished", "p1 upgrade Outdated"}},
		"SS-083, SS-200 only active and matching pods that have the containers": {sidecarsettest.Set(two), 5, []func(int, *corev1.Pod){
			only(0, func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: sidecarsettest.Now} }), only(1,
				func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }),
			only(2, sidecarsettest.Labelled("app", "other")), only(3,
				func(pod *corev1.Pod) { pod.Spec.Containers[0].Name = "renamed" })}, []string{"p4 upgrade Outdated"}},
		"SS-006 a pod that was never injected": {sidecarsettest.Set(two), 1,
			[]func(int, *corev1.Pod){sidecarsettest.Every(func(pod *corev1.Pod) { delete(pod.Annotations, pub.SidecarSetInjectedList) })}, nil},
		"SS-213 by weight": {rolling(func(u *appsv1beta1.SidecarSetUpdateStrategy) {
			u.PriorityStrategy = &pub.UpdatePriorityStrategy{WeightPriority: []pub.UpdatePriorityWeightTerm{{Weight: 9,
				MatchSelector: *selector}}}
		}), 2, []func(int, *corev1.Pod){only(1, sidecarsettest.Labelled("canary", "yes"))},
			[]string{"p0 wait MaxUnavailable", "p1 upgrade Outdated"}},
		"a SidecarSet that did not pass the webhook": {nil, 1, nil, []string{"p0 wait NoHash"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			now := tt.now
			if now == nil {
				now = sidecarsettest.Set(two)
			}
			s := sidecarsettest.Snapshot(now, sidecarsettest.Set(), tt.pods, tt.options...)
			if tt.now == nil {
				now.Annotations = nil
			}
			plan := sidecarset.Make(s)
			if diff := cmp.Diff(tt.want, words(plan)); diff != "" {
				t.Errorf("what is done (-want +got):\n%s\n%s", diff, plan)
			}
			for _, v := range plan.Verdicts {
				if v.Message == "" {
					t.Errorf("pod %s has no message", v.Pod.Name)
				}
			}
		})
	}
}

// Pods are matched by the labels of their namespaces; one that is not known matches nothing (SS-080, SS-200).
func TestPodsAreMatchedByLabelsOfTheirNamespaces(t *testing.T) {
	for name, tt := range map[string]struct {
		known map[string]map[string]string
		want  int32
	}{"matches": {map[string]map[string]string{"default": {"team": "a"}},
		1}, "does not": {map[string]map[string]string{"default": {"team": "b"}}, 0}, "unknown": {nil, 0}} {
		t.Run(name, func(t *testing.T) {
			s := sidecarsettest.Snapshot(sidecarsettest.Set(func(set *appsv1beta1.SidecarSet) {
				set.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
			}), sidecarsettest.Set(), 1)
			s.Namespaces = tt.known
			if got := sidecarset.Make(s).Status.MatchedPods; got != tt.want {
				t.Errorf("%d pods", got)
			}
		})
	}
}

// Of ten pods the three that match stand at 1, 6 and 10; a star stands for every value (SS-214 (part)).
func TestScatteredPodsStandApart(t *testing.T) {
	for _, value := range []string{"a", "*"} {
		s := sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Image("proxy", "proxy:2"),
			sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) {
				u.ScatterStrategy = []pub.UpdateScatterTerm{{Key: "zone", Value: value}}
			})), sidecarsettest.Set(), 10, func(i int, pod *corev1.Pod) {
			if i < 3 {
				pod.Labels["zone"] = "a"
			}
		})
		var places []int
		for i, pod := range sidecarset.Make(s).InOrder() {
			if pod.Labels["zone"] == "a" {
				places = append(places, i+1)
			}
		}
		if diff := cmp.Diff([]int{1, 6, 10}, places); diff != "" {
			t.Errorf("%s: places (-want +got):\n%s", value, diff)
		}
	}
}

// patched applies the patches of the only verdict, and returns what they say.
func patched(t *testing.T, s sidecarset.Snapshot) (document map[string]any, annotations map[string]string) {
	t.Helper()
	plan := sidecarset.Make(s)
	if len(plan.Verdicts) != 1 {
		t.Fatalf("no change: number of verdicts: got %d, want 1\n%s", len(plan.Verdicts), plan)
	} else if plan.Verdicts[0].Change == nil {
		t.Fatalf("no change: change of the first verdict: got nil, want a value\n%s", plan)
	}
	patches, err := plan.Verdicts[0].Change(s.Pods[0], sidecarsettest.Now)
	if err != nil {
		t.Fatalf("unexpected error: %v\n%v", err, patches)
	} else if len(patches) != 1 {
		t.Fatalf("number of patches: got %d, want 1\n%v\n%v", len(patches), patches, err)
	}
	body, err := patches[0].JSON(s.Pods[0])
	if err != nil {
		t.Fatal(err)
	}
	var patch struct {
		Metadata struct{ Annotations map[string]string }
		Spec     map[string]any
	}
	if err := json.Unmarshal(body, &patch); err != nil {
		t.Fatal(err)
	}
	return patch.Spec, patch.Metadata.Annotations
}

// TestWhatAnUpgradeWrites: images of our containers that differ, and annotations; entries of others stay, and
// the times are new (SS-225, SS-226, SS-227, SS-229, SS-231, SS-W01a).
func TestWhatAnUpgradeWrites(t *testing.T) {
	metadata := func(set *appsv1beta1.SidecarSet) {
		set.Spec.PatchPodMetadata = []appsv1beta1.SidecarSetPatchPodMetadata{{Annotations: map[string]string{"retained": "ours",
			"added": "x"}},
			{PatchPolicy: appsv1beta1.SidecarSetOverwritePatchPolicy, Annotations: map[string]string{"over": "new"}}}
	}
	others := sidecarsettest.Every(sidecarsettest.Annotated("retained", "theirs"), func(pod *corev1.Pod) {
		records, _ := sidecarset.ReadRecords(pod.Annotations[pub.SidecarSetHash])
		records["other"] = pub.SidecarSetRecord{Hash: "h"}
		pod.Annotations[pub.SidecarSetHash] = records.String()
		pod.Annotations[pub.SidecarSetInPlaceUpdateState] = `{"mesh":{"revision":"old","updateTimestamp":"2029-01-01T00:00:00Z","lastContainerStatuses":{"agent":{"imageID":"former"}}},"other":{"revision":"kept"}}`
	})
	both := func(image string) *appsv1beta1.SidecarSet {
		return sidecarsettest.Set(metadata, sidecarsettest.Containers(sidecarsettest.Cold("agent", "agent:1"),
			sidecarsettest.Cold("proxy", image)),
			sidecarsettest.Inits(sidecarsettest.NativeSidecar("net:"+image[len(image)-1:]), sidecarsettest.Cold("boot", "boot:1")))
	}
	s := sidecarsettest.Snapshot(both("proxy:2"), both("proxy:1"), 1, others)
	spec, annotations := patched(t, s)
	entry := func(name, image string) []any { return []any{map[string]any{"name": name, "image": image}} }
	if diff := cmp.Diff(map[string]any{"containers": entry("proxy", "proxy:2"), "initContainers": entry("net", "net:2")},
		spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	records, err := sidecarset.ReadRecords(annotations[pub.SidecarSetHash])
	if err != nil {
		t.Fatal(err)
	}
	want := sidecarset.Records{"other": {Hash: "h"}, "mesh": {Hash: s.Set.Annotations[pub.SidecarSetHash], SidecarSetName: "mesh",
		SidecarList:        []string{"agent", "net", "proxy"},
		ControllerRevision: sidecarset.Make(s).Status.LatestRevision, UpdateTimestamp: metav1.NewTime(sidecarsettest.Now)}}
	if diff := cmp.Diff(want.String(), records.String()); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	states, err := sidecarset.ReadStates(annotations[pub.SidecarSetInPlaceUpdateState])
	if err != nil {
		t.Fatal(err)
	}
	mesh := states["mesh"]
	if mesh.Revision != s.Set.Annotations[pub.SidecarSetHash] {
		t.Errorf("revision: got %q, want %q\n%+v", mesh.Revision, s.Set.Annotations[pub.SidecarSetHash], states)
	}
	if !mesh.UpdateTimestamp.Time.Equal(sidecarsettest.Now) {
		t.Errorf("time of the update: got %v, want %v\n%+v", mesh.UpdateTimestamp.Time, sidecarsettest.Now, states)
	}
	if states["other"].Revision != "kept" {
		t.Errorf("revision of the state other: got %q, want %q\n%+v", states["other"].Revision, "kept", states)
	}
	if mesh.LastContainerStatuses["proxy"].ImageID != "id:proxy:1" {
		t.Errorf("ID of the image of the last container status proxy: got %q, want %q\n%+v", mesh.LastContainerStatuses["proxy"].ImageID,
			"id:proxy:1", states)
	}
	if mesh.LastContainerStatuses["net"].ImageID != "id:net:1" {
		t.Errorf("ID of the image of the last container status net: got %q, want %q\n%+v", mesh.LastContainerStatuses["net"].ImageID, "id:net:1",
			states)
	}
	if mesh.LastContainerStatuses["agent"].ImageID != "former" {
		t.Errorf("ID of the image of the last container status agent: got %q, want %q\n%+v", mesh.LastContainerStatuses["agent"].ImageID,
			"former", states)
	}
	for key, value := range map[string]string{"retained": "", "added": "x", "over": "new", pub.SidecarSetHashWithoutImage: "",
		pub.SidecarSetInjectedList: ""} {
		if annotations[key] != value {
			t.Errorf("annotation %s is %q", key, annotations[key])
		}
	}

	already := sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Image("proxy", "proxy:2")), sidecarsettest.Set(), 1,
		sidecarsettest.Every(func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "proxy:2" }, sidecarsettest.Running))
	if spec, annotations := patched(t, already); len(spec) != 0 {
		t.Errorf("SS-227: number of fields of the spec: got %d, want 0\n%v\n%v", len(spec), spec, annotations)
	} else if !strings.Contains(annotations[pub.SidecarSetHash], already.Set.Annotations[pub.SidecarSetHash]) {
		t.Errorf("SS-227: annotation sidecar set hash: got %q, want it to contain %q\n%v\n%v", annotations[pub.SidecarSetHash],
			already.Set.Annotations[pub.SidecarSetHash], spec, annotations)
	}
	if plan := sidecarset.Make(sidecarsettest.Snapshot(sidecarsettest.Set(metadata), sidecarsettest.Set(), 1)); len(plan.Verdicts) != 1 {
		t.Errorf("SS-227: metadata alone is rolled out: number of verdicts: got %d, want 1\n%s", len(plan.Verdicts), plan)
	} else if plan.Verdicts[0].Change != nil {
		t.Errorf("SS-227: metadata alone is rolled out: change of the first verdict: got a value, want nil\n%s", plan)
	}
}

// TestConsistency (SS-215, SS-D03, SS-W01b).
func TestConsistency(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	record := func(entry string) func(*corev1.Pod) {
		return sidecarsettest.Annotated(pub.SidecarSetInPlaceUpdateState,
			`{"mesh":{"updateTimestamp":"2030-01-01T00:00:00Z","lastContainerStatuses":{"proxy":`+entry+`}}}`)
	}
	spec := func(image string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = image }
	}
	id := func(id string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].ImageID = id }
	}
	container := func(id string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].ContainerID = id }
	}
	tests := map[string]struct {
		options []func(*corev1.Pod)
		want    bool
	}{
		"no upgrade":                            {nil, true},
		"a state that nobody can read":          {[]func(*corev1.Pod){sidecarsettest.Annotated(pub.SidecarSetInPlaceUpdateState, "{")}, false},
		"a status is missing":                   {[]func(*corev1.Pod){func(pod *corev1.Pod) { pod.Status.ContainerStatuses = pod.Status.ContainerStatuses[:1] }}, false},
		"the reference's record, still the old": {[]func(*corev1.Pod){spec("proxy:2"), record(`{"imageID":"id:proxy:1"}`)}, false},
		"the reference's record, the new runs": {[]func(*corev1.Pod){spec("proxy:2"), record(`{"imageID":"id:proxy:1"}`), id("new")},
			true},
		"the same image ID, a normalised name": {[]func(*corev1.Pod){spec("proxy:2"), record(`{"imageID":"id:proxy:1"}`),
			statusImage("docker.io/library/proxy:2")}, true},
		"the tag latest, normalised": {[]func(*corev1.Pod){spec("proxy"), record(`{"imageID":"id:proxy:1"}`),
			statusImage("docker.io/library/proxy:latest")}, true},
		"another container of the same image ID": {[]func(*corev1.Pod){spec("proxy:2"),
			record(`{"imageID":"id:proxy:1","containerID":"before","image":"proxy:1"}`)}, true},
		"the same container of the same image ID": {[]func(*corev1.Pod){spec("proxy:2"),
			record(`{"imageID":"id:proxy:1","containerID":"c","image":"proxy:1"}`), container("c")}, false},
		"an upgrade that another one overtook": {[]func(*corev1.Pod){spec("proxy:3"),
			record(`{"imageID":"id:proxy:1","containerID":"c","image":"proxy:2"}`), id("id:proxy:2"), statusImage("proxy:2")}, false},
		"by digest, runs": {[]func(*corev1.Pod){spec("example.com/proxy@" + digest),
			id("docker-pullable://example.com/proxy@" + digest)}, true},
		"by digest, another": {[]func(*corev1.Pod){spec("example.com/proxy@" + digest),
			record(`{"imageID":"id:proxy:1"}`), id("example.com/proxy@sha256:" + strings.Repeat("0", 64))}, false},
		"by digest, another, and no upgrade": {[]func(*corev1.Pod){spec("example.com/proxy@" + digest),
			id("example.com/proxy@sha256:" + strings.Repeat("0", 64))}, true},
		"by digest, another repository": {[]func(*corev1.Pod){spec("example.com/proxy@" + digest), id("example.com/other@" +
			digest)}, true},
		"by digest, without a repository": {[]func(*corev1.Pod){spec("example.com/proxy@" + digest), id("sha256:" +
			strings.Repeat("0", 64))}, true},
		"by digest, normalised": {[]func(*corev1.Pod){spec("proxy@" + digest), id("docker.io/library/proxy@" + digest)},
			true},
		"by digest, the runtime tells the name": {[]func(*corev1.Pod){spec("proxy@" + digest), id("sha256:config"),
			statusImage("docker.io/library/proxy@" + digest)}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set := sidecarsettest.Set()
			sidecarsettest.Stamp(set)
			pod := sidecarsettest.Pod(set, "p", sidecarsettest.Running)
			for _, option := range tt.options {
				option(pod)
			}
			behind, busy := sidecarset.Consistency(pod, "mesh", []string{"proxy"}, false)
			if (behind == "") != tt.want {
				t.Errorf(`nothing is behind: got %t, want %t; behind %q, busy %q`, behind == "", tt.want, behind, busy)
			}
			if (busy == "") != tt.want {
				t.Errorf(`nothing is busy: got %t, want %t; behind %q, busy %q`, busy == "", tt.want, behind, busy)
			}
		})
	}
	set := sidecarsettest.Set(sidecarsettest.Inits(sidecarsettest.NativeSidecar("net:1")))
	sidecarsettest.Stamp(set)
	pod := sidecarsettest.Pod(set, "p", sidecarsettest.Running)
	if behind, _ := sidecarset.Consistency(pod, "mesh", sidecarset.PodNames(&set.Spec), true); behind != "" {
		t.Errorf("behind: got %q, want %q", behind, "")
	}
	pod.Status.InitContainerStatuses = nil
	if behind, _ := sidecarset.Consistency(pod, "mesh", sidecarset.PodNames(&set.Spec), true); behind == "" {
		t.Error("a native sidecar without status is consistent")
	}
	pod.Spec.InitContainers = nil
	if missing := sidecarset.Lacking(&set.Spec, pod, nil); missing == "" {
		t.Error("a pod without the native sidecar has all")
	}
}

// TestStatus counts; there is nothing else in the status (SS-204, SS-205, SS-216, SS-263).
func TestStatus(t *testing.T) {
	s := sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Image("proxy", "proxy:2"),
		func(set *appsv1beta1.SidecarSet) { set.Generation = 7 }), sidecarsettest.Set(), 3,
		only(1, sidecarsettest.NotReady))
	now := sidecarsettest.Pod(s.Set, "new", sidecarsettest.Running)
	late := sidecarsettest.Pod(s.Set, "late", sidecarsettest.Running, sidecarsettest.NotReady)
	s.Pods = append(s.Pods, now, late)
	got := sidecarset.Make(s).Status
	want := appsv1beta1.SidecarSetStatus{ObservedGeneration: 7, MatchedPods: 5, UpdatedPods: 2, ReadyPods: 3, UpdatedReadyPods: 1,
		LatestRevision: got.LatestRevision}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.LatestRevision == "" {
		t.Error("latest revision: got nothing, want some text")
	}
}

// Values of cpu and memory change in place where that is switched on and possible (SS-W02).
func TestResourcesChangeInPlaceWhereThatIsPossible(t *testing.T) {
	sized := func(cpu string, more ...func(*appsv1beta1.SidecarContainer)) *appsv1beta1.SidecarSet {
		c := sidecarsettest.Cold("proxy", "proxy:1")
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		for _, change := range more {
			change(&c)
		}
		return sidecarsettest.Set(sidecarsettest.Containers(c))
	}
	has := sidecarsettest.Every(func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	})
	limited := func(c *appsv1beta1.SidecarContainer) {
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	}
	tests := map[string]struct {
		now    *appsv1beta1.SidecarSet
		resize bool
		want   string
	}{
		"a value":               {sized("2"), true, "p0 upgrade Outdated"},
		"a value, switched off": {sized("2"), false, "p0 wait NotUpgradable"},
		"a limit that was not":  {sized("2", limited), true, "p0 wait NotUpgradable"},
		"something else, too": {sized("2", func(c *appsv1beta1.SidecarContainer) { c.Command = []string{"x"} }), true,
			"p0 wait NotUpgradable"},
		"image and value": {sized("2", func(c *appsv1beta1.SidecarContainer) { c.Image = "proxy:2" }), true,
			"p0 upgrade Outdated"},
		"the class of the pod":       {sized("0"), true, "p0 wait NotUpgradable"},
		"resources that are derived": {sized("2", func(c *appsv1beta1.SidecarContainer) { c.ResourcesPolicy = &appsv1beta1.ResourcesPolicy{} }), true, "p0 wait NotUpgradable"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := sidecarsettest.Snapshot(tt.now, sized("1"), 1, has)
			s.Features.Resize = tt.resize
			plan := sidecarset.Make(s)
			if diff := cmp.Diff([]string{tt.want}, words(plan)); diff != "" {
				t.Fatalf("what is done (-want +got):\n%s\n%s", diff, plan)
			}
			if plan.Verdicts[0].Change == nil {
				return
			}
			patches, err := plan.Verdicts[0].Change(s.Pods[0], sidecarsettest.Now)
			if err != nil {
				t.Fatalf("unexpected error: %v\n%v", err, patches)
			} else if len(patches) != 3 {
				t.Fatalf("number of patches: got %d, want 3\n%v\n%v", len(patches), patches, err)
			} else if got := patches[1].Subresource(); got != "resize" {
				t.Fatalf("subresource of the second patch: got %q, want %q\n%v\n%v", got, "resize", patches, err)
			}
			if body, _ := patches[2].JSON(s.Pods[0]); !strings.Contains(string(body), s.Set.Annotations[pub.SidecarSetHashWithoutImage]) {
				t.Errorf("the hash without images is not recorded: %s", body)
			}
		})
	}
	s := sidecarsettest.Snapshot(sized("1"), sized("1"), 1, has)
	s.Features.Resize = true
	pod := s.Pods[0]
	pod.Status.ContainerStatuses[0].Resources = &corev1.ResourceRequirements{}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue,
		Reason: corev1.PodReasonInfeasible, Message: "too big"},
		corev1.PodCondition{Type: pub.SidecarSetUpgradable, Status: corev1.ConditionTrue, Message: `{"mesh":true}`})
	v := sidecarset.Make(s).Verdicts[0]
	if v.Reason != sidecarset.ReasonResizeInfeasible {
		t.Errorf("a resize that never fits: got reason %s, want %s", v.Reason, sidecarset.ReasonResizeInfeasible)
	}
	if v.Upgradable == nil || *v.Upgradable {
		t.Errorf("a resize that never fits: got %+v, want that it cannot be upgraded", v)
	}
}
