package sidecarset_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
)

// TestRevisions: one revision for each content, numbered, and a content that comes back is not written twice
// (SS-183 to SS-188).
func TestRevisions(t *testing.T) {
	named := func(version string) func(*appsv1.ControllerRevision) {
		return func(r *appsv1.ControllerRevision) { r.Labels[pub.SidecarSetCustomVersion] = version }
	}
	taken := func(r *appsv1.ControllerRevision) { r.Data.Raw = sidecarsettest.Stored("proxy:9", 1).Data.Raw }
	tests := map[string]struct {
		stored []*appsv1.ControllerRevision
		change func(*appsv1beta1.SidecarSet)
		want   string
	}{
		"SS-184 the first": {nil, nil, "new 1"},
		"SS-184 the next":  {[]*appsv1.ControllerRevision{sidecarsettest.Stored("proxy:1", 4)}, nil, "new 5"},
		"SS-184 nothing new": {[]*appsv1.ControllerRevision{sidecarsettest.Stored("proxy:1", 1), sidecarsettest.Stored("proxy:2", 2)}, nil,
			"none"},
		"SS-184 back to an older one": {[]*appsv1.ControllerRevision{sidecarsettest.Stored("proxy:2", 1), sidecarsettest.Stored("proxy:1", 2)},
			nil,
			"raised to 3"},
		"SS-184 the same in other words": {[]*appsv1.ControllerRevision{sidecarsettest.Stored("proxy:2", 1,
			func(r *appsv1.ControllerRevision) { r.Data.Raw = append([]byte(" "), r.Data.Raw...) })}, nil, "none"},
		"SS-185 a name that is taken": {[]*appsv1.ControllerRevision{sidecarsettest.Stored("proxy:2", 1, taken)}, nil,
			"new 2 after 1 collision"},
		"SS-186 a version for it": {[]*appsv1.ControllerRevision{sidecarsettest.Stored("proxy:2", 1)},
			func(set *appsv1beta1.SidecarSet) { set.Spec.CustomVersion = "r2" }, "called r2"},
		"SS-186 it has the version": {[]*appsv1.ControllerRevision{sidecarsettest.Stored("proxy:2", 1, named("r2"))},
			func(set *appsv1beta1.SidecarSet) { set.Spec.CustomVersion = "r2" }, "none"},
		"SS-186 an emptied version stays": {[]*appsv1.ControllerRevision{sidecarsettest.Stored("proxy:2", 1, named("r2"))}, nil, "none"},
		"SS-188 one of somebody else": {[]*appsv1.ControllerRevision{sidecarsettest.Stored("proxy:2", 7, sidecarsettest.OwnedBy("other"))},
			nil, "new 1"},
		"SS-188 one of nobody": {[]*appsv1.ControllerRevision{sidecarsettest.Stored("proxy:2", 7, sidecarsettest.OwnedBy(""))}, nil,
			"none"},
		"SS-019 only what a revision holds counts": {[]*appsv1.ControllerRevision{sidecarsettest.Stored("proxy:2", 1)},
			sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.Paused = true }), "none"},
		"SS-183 metadata counts": {[]*appsv1.ControllerRevision{sidecarsettest.Stored("proxy:2", 1)}, func(set *appsv1beta1.SidecarSet) {
			set.Spec.PatchPodMetadata = []appsv1beta1.SidecarSetPatchPodMetadata{{Annotations: map[string]string{"a": "b"}}}
		}, "new 2"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set := sidecarsettest.Set(sidecarsettest.Image("proxy", "proxy:2"))
			if tt.change != nil {
				tt.change(set)
			}
			sidecarsettest.Stamp(set)
			plan := sidecarset.Make(sidecarset.Snapshot{Set: set, Revisions: tt.stored, RevisionNamespace: "kruise-system"})
			got := "none"
			if r := plan.NewRevision; r != nil {
				got = fmt.Sprintf("new %d", r.Revision)
				if c := plan.Status.CollisionCount; c != nil {
					got += fmt.Sprintf(" after %d collision", *c)
				}
				if plan.Status.LatestRevision != r.Name {
					t.Errorf("latestRevision %s", plan.Status.LatestRevision)
				}
			}
			if c := plan.ChangeRevision; c != nil && c.Number != 0 {
				got = fmt.Sprintf("raised to %d", c.Number)
			} else if c != nil {
				got = "called " + c.CustomVersion
			}
			if got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// TestNewRevision: labels, annotations and owner (SS-183).
func TestNewRevision(t *testing.T) {
	set := sidecarsettest.Set(func(set *appsv1beta1.SidecarSet) {
		set.UID, set.Labels, set.Spec.CustomVersion = "u", map[string]string{"team": "a"}, "r1"
		set.Annotations = map[string]string{"note": "x"}
	})
	sidecarsettest.Stamp(set)
	r := sidecarset.Make(sidecarset.Snapshot{Set: set, RevisionNamespace: "kruise-system"}).NewRevision
	yes := true
	want := metav1.ObjectMeta{Namespace: "kruise-system", Name: r.Name, Annotations: set.Annotations,
		Labels: map[string]string{"team": "a", pub.RevisionHash: r.Name[len("mesh-"):], pub.SidecarSetName: "mesh",
			pub.SidecarSetCustomVersion: "r1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "SidecarSet", Name: "mesh", UID: "u",
			Controller: &yes, BlockOwnerDeletion: &yes}}}
	if diff := cmp.Diff(want, r.ObjectMeta); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
}

// TestHistory: what pods or the injection strategy need stays (SS-187, SS-D25).
func TestHistory(t *testing.T) {
	limit := func(n int32) func(*appsv1beta1.SidecarSet) {
		return func(set *appsv1beta1.SidecarSet) { set.Spec.RevisionHistoryLimit = &n }
	}
	inject := func(r appsv1beta1.SidecarSetInjectRevision) func(*appsv1beta1.SidecarSet) {
		return func(set *appsv1beta1.SidecarSet) { set.Spec.InjectionStrategy.Revision = &r }
	}
	both := func(options ...func(*appsv1beta1.SidecarSet)) func(*appsv1beta1.SidecarSet) {
		return func(set *appsv1beta1.SidecarSet) {
			for _, option := range options {
				option(set)
			}
		}
	}
	tests := map[string]struct {
		change func(*appsv1beta1.SidecarSet)
		pod    string // the revision that a pod has
		want   []int
	}{
		"ten by default":        {func(*appsv1beta1.SidecarSet) {}, "", []int{1, 2}},
		"a limit":               {limit(3), "", []int{1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"0 acts as 1":           {limit(0), "", []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
		"less than 0 acts as 1": {limit(-5), "", []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
		"a pod has it":          {limit(11), "proxy:1", []int{2}},
		"by name, for new pods": {both(limit(11),
			inject(appsv1beta1.SidecarSetInjectRevision{RevisionName: new(sidecarsettest.Stored("proxy:1", 1).Name)})), "", []int{2}},
		"by version, the newest of it": {both(limit(10), inject(appsv1beta1.SidecarSetInjectRevision{CustomVersion: new("v")})), "",
			[]int{1, 3}},
		"all others are gone, one more": {both(limit(1), inject(appsv1beta1.SidecarSetInjectRevision{CustomVersion: new("v")})), "proxy:1",
			[]int{3, 4, 5, 6, 7, 8, 9, 10, 11}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := sidecarset.Snapshot{Set: sidecarsettest.Set(sidecarsettest.Image("proxy", "proxy:12"), tt.change),
				RevisionNamespace: "kruise-system"}
			sidecarsettest.Stamp(s.Set)
			for i := range 12 {
				r := sidecarsettest.Stored(fmt.Sprintf("proxy:%d", i+1), int64(i+1))
				if i < 2 {
					r.Labels[pub.SidecarSetCustomVersion] = "v"
				}
				s.Revisions = append(s.Revisions, r)
			}
			slices.Reverse(s.Revisions)
			if tt.pod != "" {
				former := sidecarsettest.Set(sidecarsettest.Image("proxy", tt.pod))
				sidecarsettest.Stamp(former)
				former.Status.LatestRevision = sidecarsettest.Stored(tt.pod, 1).Name
				s.Pods = append(s.Pods, sidecarsettest.Pod(former, "p", sidecarsettest.Running))
			}
			var numbers []int
			for _, r := range sidecarset.Make(s).History {
				numbers = append(numbers, int(r.Revision))
			}
			if diff := cmp.Diff(tt.want, numbers); diff != "" {
				t.Errorf("numbers (-want +got):\n%s", diff)
			}
		})
	}
}

// A document that is no container stops everything but crashes nothing (SS-D07).
func TestAnUndecodableDocumentCrashesNothing(t *testing.T) {
	set := sidecarsettest.Set()
	if err := set.Spec.Containers[0].UnmarshalJSON([]byte(`{"name":"proxy","ports":"none"}`)); err != nil {
		t.Fatal(err)
	}
	pod := sidecarsettest.Pod(sidecarsettest.Set(), "p", sidecarsettest.Running)
	plan := sidecarset.Make(sidecarset.Snapshot{Set: set, Pods: nil})
	if plan.Writes() {
		t.Errorf("writes: got true, want false\n%v", plan)
	}
	if len(plan.Sentences) != 1 {
		t.Errorf("number of sentences: got %d, want 1\n%v", len(plan.Sentences), plan)
	}
	garbage := sidecarsettest.Stored("proxy:1", 1, func(r *appsv1.ControllerRevision) { r.Data = runtime.RawExtension{Raw: []byte("[")} })
	good := sidecarsettest.Set(sidecarsettest.Image("proxy", "proxy:2"))
	sidecarsettest.Stamp(good)
	for _, key := range slices.Collect(maps.Keys(pod.Annotations)) {
		pod.Annotations[key] = "{"
	}
	pod.Annotations[pub.SidecarSetInjectedList] = "mesh"
	if plan := sidecarset.Make(sidecarset.Snapshot{Set: good, Revisions: []*appsv1.ControllerRevision{garbage},
		Pods: []*corev1.Pod{pod}}); len(plan.Verdicts) != 1 {
		t.Errorf("number of verdicts: got %d, want 1\n%v", len(plan.Verdicts), plan)
	}
}

// TestVersionThatIsNoLabel: one that was stored before it was judged neither stops the SidecarSet nor is
// written (SS-051, SS-D14).
func TestVersionThatIsNoLabel(t *testing.T) {
	wrong := func(set *appsv1beta1.SidecarSet) { set.Spec.CustomVersion = "version one!" }
	plan := sidecarset.Make(sidecarsettest.Snapshot(sidecarsettest.Set(wrong), sidecarsettest.Set(), 1))
	if plan.ChangeRevision != nil {
		t.Errorf("change of the revision: got %+v, want nil\n%s", plan.ChangeRevision, plan)
	} else if !strings.Contains(plan.String(), `spec.customVersion "version one!" is no value of a label`) {
		t.Errorf("plan: got %q, want it to contain %q\n%+v", plan.String(), `spec.customVersion "version one!" is no value of a label`,
			plan.ChangeRevision)
	}
	plan = sidecarset.Make(sidecarsettest.Snapshot(sidecarsettest.Set(wrong, sidecarsettest.Image("proxy", "proxy:2")), sidecarsettest.Set(),
		1))
	if _, labelled := plan.NewRevision.Labels[pub.SidecarSetCustomVersion]; labelled {
		t.Errorf("labelled: got true, want false\n%v\n%s", plan.NewRevision.Labels, plan)
	} else if len(plan.Verdicts) != 1 {
		t.Errorf("number of verdicts: got %d, want 1\n%v\n%s", len(plan.Verdicts), plan.NewRevision.Labels, plan)
	} else if plan.Verdicts[0].Action != sidecarset.Upgrade {
		t.Errorf("action of the first verdict: got %q, want %q\n%v\n%s", plan.Verdicts[0].Action,
			sidecarset.Upgrade, plan.NewRevision.Labels,
			plan)
	}
}

// TestRevisionOfPodsThatDoNotNameIt is kept: admission does not name what is not stored yet (SS-181, SS-187).
func TestRevisionOfPodsThatDoNotNameIt(t *testing.T) {
	limit := int32(1)
	s := sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Image("proxy", "proxy:2"),
		func(set *appsv1beta1.SidecarSet) { set.Spec.RevisionHistoryLimit = &limit }), sidecarsettest.Set(),
		1)
	records, err := sidecarset.ReadRecords(s.Pods[0].Annotations[pub.SidecarSetHash])
	if err != nil {
		t.Fatal(err)
	}
	record := records["mesh"]
	record.ControllerRevision = ""
	s.Pods[0].Annotations[pub.SidecarSetHash] = sidecarset.Records{"mesh": record}.String()
	if plan := sidecarset.Make(s); len(plan.History) != 0 {
		t.Errorf("number of revisions that go: got %d, want 0\n%s", len(plan.History), plan)
	}
}
