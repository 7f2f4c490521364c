package daemonset

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
)

const twoImages = `{"metadata":{"labels":{"app":"agent"}},"spec":{"containers":[{"name":"main","image":"a:1"},{"name":"side","image":"s:1"}],` +
	`"initContainers":[{"name":"init","image":"i:1"}]}}`

// document stores the revision of a template, under that name.
func (w *world) document(name, document string) {
	w.t.Helper()
	if err := w.Set.Spec.Template.UnmarshalJSON([]byte(document)); err != nil {
		w.t.Fatal(err)
	}
	if w.revisions[name] == "" {
		w.store(name)
	}
}

// pulling is a set of five nodes on its way from one template to another, at which the pods of so many are.
func pulling(t *testing.T, nodes, updated int, from, to string, options ...option) *world {
	w := newWorld(t, nodes, options...)
	w.Features.PreDownload, w.PullJobsServed = true, true
	w.document("old", from)
	if to != "" {
		w.document("new", to)
	}
	for i := range nodes {
		name, key := fmt.Sprint("n", i+1), "old"
		if i >= nodes-updated {
			key = "new"
		}
		w.pod(name, key)
	}
	return w
}

// TestImagesArePulledAhead shows ADS-180 (part), ADS-181, ADS-182, ADS-183, ADS-184 and ADS-186 (part): when
// jobs are made, for what, and when none are.
func TestImagesArePulledAhead(t *testing.T) {
	const ignored, created = pub.PreDownloadIgnored, pub.PreDownloadCreated
	const least = pub.ImagePreDownloadMinUpdatedReadyPods
	main, both := []string{"main a:2"}, []string{"main a:2", "side s:2"}
	for name, tt := range map[string]struct {
		nodes, updated int
		to             string // what the images become
		options        []option
		change         func(*world)
		want           []string
		mark           string
	}{
		"the image that changed":     {5, 0, "a:1=a:2", nil, nil, main, created},
		"in place":                   {5, 0, "a:1=a:2", []option{inPlace}, nil, main, created},
		"with a surge":               {5, 0, "a:1=a:2", []option{maxSurge(1)}, nil, main, created},
		"both that did":              {5, 0, "a:1=a:2,s:1=s:2", nil, nil, both, created},
		"a container that is new":    {5, 0, `"name":"side"="name":"other"`, nil, nil, []string{"other s:1"}, created},
		"an init container has none": {5, 0, "i:1=i:2", nil, nil, nil, ""},
		"no image":                   {5, 0, `"app":"agent"="app":"agent","a":"b"`, nil, nil, nil, ""},
		"all are updated":            {5, 5, "a:1=a:2", nil, nil, nil, ""},
		"two nodes":                  {2, 0, "a:1=a:2", nil, nil, main, created},
		"a gate is off":              {5, 0, "a:1=a:2", nil, func(w *world) { w.Features.PreDownload = false }, nil, ""},
		"the kind is not installed":  {5, 0, "a:1=a:2", nil, func(w *world) { w.PullJobsServed = false }, nil, ""},
		"one node":                   {1, 0, "a:1=a:2", nil, nil, nil, ignored},
		"no node":                    {0, 0, "a:1=a:2", nil, nil, nil, ""},
		"the first deployment":       {5, 0, "", nil, func(w *world) { w.Pods = nil }, nil, ""},
		"all at once":                {5, 0, "a:1=a:2", []option{maxUnavailable("100%")}, nil, nil, ignored},
		"almost, and rounded up":     {5, 0, "a:1=a:2", []option{maxUnavailable("81%")}, nil, nil, ignored},
		"all but one":                {5, 0, "a:1=a:2", []option{maxUnavailable("80%")}, nil, main, created},
		"all at once, a partition":   {5, 0, "a:1=a:2", []option{maxUnavailable("100%"), partition(1)}, nil, main, created},
		"OnDelete":                   {5, 0, "a:1=a:2", []option{onDelete}, nil, nil, ignored},
		"OnDelete alone": {5, 0, "a:1=a:2", []option{onDelete},
			func(w *world) { w.Set.Spec.UpdateStrategy.RollingUpdate = nil }, nil, ignored},
		"paused":               {5, 0, "a:1=a:2", []option{paused}, nil, main, created},
		"too few are updated":  {5, 1, "a:1=a:2", []option{annotated(least, "2")}, nil, nil, ""},
		"enough are":           {5, 2, "a:1=a:2", []option{annotated(least, "2")}, nil, main, created},
		"but not ready":        {5, 2, "a:1=a:2", []option{annotated(least, "2")}, func(w *world) { notReadyPod(w.Pods[4]) }, nil, ""},
		"of all, rounded up":   {5, 2, "a:1=a:2", []option{annotated(least, "41%")}, nil, nil, ""},
		"and there are enough": {5, 3, "a:1=a:2", []option{annotated(least, "41%")}, nil, main, created},
		"what is no number":    {5, 0, "a:1=a:2", []option{annotated(least, "some")}, nil, main, created},
		"ignored already":      {1, 0, "a:1=a:2", nil, func(w *world) { w.Revisions[1].Labels[ignored] = "true" }, nil, ""},
		"the reason is gone":   {5, 0, "a:1=a:2", nil, func(w *world) { w.Revisions[1].Labels[ignored] = "true" }, main, created},
		"created already":      {5, 0, "a:1=a:2", nil, func(w *world) { w.Revisions[1].Labels[created] = "true" }, nil, ""},
		"it was not possible":  {5, 0, "a:1=a:2", nil, func(w *world) { w.PullJobsHeldUntil = planTime.Add(1) }, nil, ""},
		"no pod has that one": {5, 0, "a:1=a:2", nil, func(w *world) { // which is not the present one
			w.document("other", strings.ReplaceAll(twoImages, "s:1", "s:9"))
			w.document("new", strings.ReplaceAll(twoImages, "a:1", "a:2"))
			w.Revisions[1].Revision = 9
		}, main, created},
	} {
		t.Run(name, func(t *testing.T) {
			to := twoImages
			for change := range strings.SplitSeq(tt.to, ",") {
				if old, new, ok := strings.Cut(change, "="); ok {
					to = strings.ReplaceAll(to, old, new)
				}
			}
			switch name {
			case "no image":
				to = strings.Replace(twoImages, `"app":"agent"`, `"app":"agent","a":"b"`, 1)
			case "the first deployment":
				to = ""
			}
			w := pulling(t, tt.nodes, tt.updated, twoImages, to, tt.options...)
			w.Set.Status.DesiredNumberScheduled = 1 // which is stale
			if tt.change != nil {
				tt.change(w)
			}
			plan := w.plan()
			var got []string
			for _, job := range plan.Pulls {
				got = append(got, job.Container+" "+job.Image)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, plan)
			}
			if marked := plan.RevisionLabels[tt.mark] == "true"; marked != (tt.mark != "") {
				t.Errorf(`the revision is marked: got %t, want %t`, marked, tt.mark != "")
			}
			if tt.mark == "" && len(plan.RevisionLabels) > 0 {
				t.Errorf("revision labels: got %v, want none", plan.RevisionLabels)
			}
			if tt.mark != "" && plan.MarkedRevision.Name != plan.UpdateRevision {
				t.Errorf("%s is marked", plan.MarkedRevision.Name)
			}
			if name == "the reason is gone" {
				if value, ok := plan.RevisionLabels[ignored]; !ok {
					t.Errorf("ok: got false, want true; the revision gets the labels %v", plan.RevisionLabels)
				} else if value != nil {
					t.Errorf("revision label ignored: got %v, want nil; the revision gets the labels %v", value,
						plan.RevisionLabels)
				}
			}
		})
	}
}

// TestPullJobsSayWhatAnnotationsAskFor shows ADS-185: what a job says, by default and by the annotations.
func TestPullJobsSayWhatAnnotationsAskFor(t *testing.T) {
	const from = `{"metadata":{"labels":{"app":"agent","tier":"node"},"annotations":{"note":"n"}},"spec":{"imagePullSecrets":[{"name":"login"}],` +
		`"containers":[{"name":"main","image":"a:1"}]}}`
	of := func(parallelism any, seconds int64) string {
		return fmt.Sprintf(`{"apiVersion":"apps.kruise.io/v1beta1","kind":"ImagePullJob","metadata":{"name":"REVISION-main","namespace":"ops",
			"labels":{"app":"agent","tier":"node","controller.kubernetes.io/hash":"HASH"},"ownerReferences":[{"apiVersion":
			"apps.kruise.io/v1beta1","kind":"DaemonSet","name":"agent","uid":"set","controller":true,"blockOwnerDeletion":true}]},
			"spec":{"image":"a:2","podSelector":{"matchLabels":{"app":"agent"},"matchExpressions":[{"key":"controller-revision-hash",
			"operator":"NotIn","values":["REVISION","HASH"]}]},"parallelism":%v,"pullPolicy":{"backoffLimit":1,"timeoutSeconds":%d},
			"completionPolicy":{"type":"Always","ttlSecondsAfterFinished":600},"pullSecrets":["login"],
			"sandboxConfig":{"labels":{"app":"agent","tier":"node"},"annotations":{"note":"n"}}}}`, parallelism, seconds)
	}
	for name, tt := range map[string]struct {
		options []option
		want    string
	}{
		"by default": {nil, of(1, 300)},
		"by the annotations": {[]option{annotated(pub.ImagePreDownloadParallelism, "4"),
			annotated(pub.ImagePreDownloadTimeoutSeconds, "30")}, of(4, 30)},
		"annotations that are no number": {[]option{annotated(pub.ImagePreDownloadParallelism, "some"),
			annotated(pub.ImagePreDownloadTimeoutSeconds, "-1")}, of(1, 300)},
	} {
		t.Run(name, func(t *testing.T) {
			plan := pulling(t, 5, 0, from, strings.Replace(from, "a:1", "a:2", 1), tt.options...).plan()
			if len(plan.Pulls) != 1 {
				t.Fatalf("number of pulls: got %d, want 1\n%v", len(plan.Pulls), plan)
			}
			text, err := json.Marshal(plan.Pulls[0].Document)
			if err != nil {
				t.Fatal(err)
			}
			var want, got any
			for text, into := range map[string]*any{string(text): &got, strings.NewReplacer("REVISION", plan.UpdateRevision, "HASH",
				strings.TrimPrefix(plan.UpdateRevision, "agent-")).Replace(tt.want): &want} {
				if err := json.Unmarshal([]byte(text), into); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPullJobsEnd shows ADS-186 (part): jobs go when all nodes are updated, and not before.
func TestPullJobsEnd(t *testing.T) {
	for updated, want := range map[int]int{0: 0, 4: 0, 5: 2} {
		w := pulling(t, 5, updated, twoImages, strings.Replace(twoImages, "a:1", "a:2", 1))
		for _, name := range []string{"one", "two"} {
			w.PullJobs = append(w.PullJobs, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		plan := w.plan()
		if len(plan.EndedPulls) != want {
			t.Errorf("number of ended pulls: got %d, want %d; %d updated: %d end\n%s", len(plan.EndedPulls), want,
				updated, len(plan.EndedPulls),
				plan)
		}
		if want > 0 && len(plan.Pulls) > 0 {
			t.Errorf("pulls: got %v, want none; %d updated: %d end\n%s", plan.Pulls, updated, len(plan.EndedPulls),
				plan)
		}
	}
}
