package statefulset

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

const twoImages = `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"main","image":"a:1"},{"name":"side","image":"s:1"}],` +
	`"initContainers":[{"name":"init","image":"i:1"}]}}`

func pulling(change func(*pub.InPlaceUpdateStrategy)) option {
	return rollingWith(func(r *appsv1beta1.RollingUpdateStatefulSetStrategy) {
		if r.InPlaceUpdateStrategy == nil {
			r.InPlaceUpdateStrategy = &pub.InPlaceUpdateStrategy{}
		}
		change(r.InPlaceUpdateStrategy)
	})
}

func annotated(key, value string) option {
	return func(set *appsv1beta1.StatefulSet) {
		if set.Annotations == nil {
			set.Annotations = map[string]string{}
		}
		set.Annotations[key] = value
	}
}

// betweenRevisions is a set on its way from one template to another: updated pods are ready at the new one.
func betweenRevisions(t *testing.T, replicas, updated int32, from, to string, options ...option) *world {
	w := newWorld(t, replicas, append([]option{policy(possible)}, options...)...)
	w.Features.PreDownload, w.PullJobsServed = true, true
	w.stored("old", from)
	w.Set.Status.CurrentRevision = w.revisions["old"]
	w.stored("new", to)
	for i := range int(replicas) {
		document, key := from, "old"
		if i >= int(replicas-updated) {
			document, key = to, "new"
		}
		w.pod(i, key, made(t, document))
	}
	return w
}

// TestImagesArePulledAhead shows ASTS-285 (part), ASTS-286, ASTS-287 and ASTS-288 (part): when jobs are made,
// for what, and when none are for this revision.
func TestImagesArePulledAhead(t *testing.T) {
	const ignored, created = pub.PreDownloadIgnored, pub.PreDownloadCreated
	const minReady = pub.ImagePreDownloadMinUpdatedReadyPods
	field := func(n int32) option {
		return pulling(func(s *pub.InPlaceUpdateStrategy) { s.ImagePreDownloadMinUpdatedReadyPods = &n })
	}
	main, both := []string{"main a:2"}, []string{"main a:2", "side s:2"}
	for name, tt := range map[string]struct {
		replicas, updated int32
		to                string // what the images become
		options           []option
		change            func(*world)
		want              []string
		mark              string
	}{
		"the image that changed":    {5, 0, "a:1=a:2", nil, nil, main, created},
		"both that did":             {5, 0, "a:1=a:2,s:1=s:2", nil, nil, both, created},
		"no image":                  {5, 0, `"app":"web"="app":"web","a":"b"`, nil, nil, nil, ""},
		"the revisions are equal":   {5, 5, "a:1=a:2", nil, func(w *world) { w.Set.Status.CurrentRevision = w.revisions["new"] }, nil, ""},
		"a gate is off":             {5, 0, "a:1=a:2", nil, func(w *world) { w.Features.PreDownload = false }, nil, ""},
		"the kind is not installed": {5, 0, "a:1=a:2", nil, func(w *world) { w.PullJobsServed = false }, nil, ""},
		"too few are updated":       {5, 1, "a:1=a:2", []option{annotated(minReady, "2")}, nil, nil, ""},
		"enough are":                {5, 2, "a:1=a:2", []option{annotated(minReady, "2")}, nil, main, created},
		"but not ready":             {5, 2, "a:1=a:2", []option{annotated(minReady, "2")}, func(w *world) { notReady(w.Pods[4]) }, nil, ""},
		"of another revision": {5, 0, "a:1=a:2", []option{annotated(minReady, "2")},
			func(w *world) { w.Set.Status.UpdatedReadyReplicas = 5 }, nil, ""},
		"a percentage, rounded up":      {5, 2, "a:1=a:2", []option{annotated(minReady, "41%")}, nil, nil, ""},
		"and there are as many":         {5, 3, "a:1=a:2", []option{annotated(minReady, "41%")}, nil, main, created},
		"the field, and too few":        {5, 2, "a:1=a:2", []option{annotated(minReady, "1"), field(3)}, nil, nil, ""},
		"the field, against a part":     {5, 1, "a:1=a:2", []option{annotated(minReady, "100%"), field(1)}, nil, main, created},
		"what is no number":             {5, 0, "a:1=a:2", []option{annotated(minReady, "some")}, nil, main, created},
		"OnDelete":                      {5, 0, "a:1=a:2", []option{deletedByHand}, nil, nil, ignored},
		"ReCreate":                      {5, 0, "a:1=a:2", []option{policy("ReCreate")}, nil, nil, ignored},
		"three pods":                    {3, 0, "a:1=a:2", nil, nil, nil, ignored},
		"four pods":                     {4, 0, "a:1=a:2", nil, nil, main, created},
		"all at once":                   {5, 0, "a:1=a:2", []option{inParallel, percent("100%")}, nil, nil, ignored},
		"all but one at once":           {5, 0, "a:1=a:2", []option{inParallel, percent("99%")}, nil, main, created},
		"all at once, but a partition":  {5, 0, "a:1=a:2", []option{inParallel, percent("100%"), partition(1)}, nil, main, created},
		"it cannot be done in place":    {5, 0, "a:1=a:2,i:1=i:2", nil, nil, nil, ignored},
		"nor may it be":                 {5, 0, "a:1=a:2,i:1=i:2", []option{policy(only)}, nil, nil, ignored},
		"ignored already":               {3, 0, "a:1=a:2", nil, func(w *world) { w.Revisions[1].Labels[ignored] = "true" }, nil, ""},
		"created already":               {5, 0, "a:1=a:2", nil, func(w *world) { w.Revisions[1].Labels[created] = "true" }, nil, ""},
		"the reason is gone":            {5, 0, "a:1=a:2", nil, func(w *world) { w.Revisions[1].Labels[ignored] = "true" }, main, created},
		"paused":                        {5, 0, "a:1=a:2", []option{paused}, nil, main, created},
		"they could not be made before": {5, 0, "a:1=a:2", nil, func(w *world) { w.PullJobsHeldUntil = planTime.Add(1) }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			to := twoImages
			for change := range strings.SplitSeq(tt.to, ",") {
				if old, new, ok := strings.Cut(change, "="); ok {
					to = strings.ReplaceAll(to, old, new)
				}
			}
			if name == "no image" {
				to = strings.Replace(twoImages, `"app":"web"`, `"app":"web","a":"b"`, 1)
			}
			w := betweenRevisions(t, tt.replicas, tt.updated, twoImages, to, tt.options...)
			if tt.change != nil {
				tt.change(w)
			}
			plan := Make(w.Snapshot)
			var got []string
			for _, job := range plan.Pulls {
				got = append(got, job.Container+" "+job.Image)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if marked := plan.RevisionLabels[tt.mark] == "true"; marked != (tt.mark != "") {
				t.Errorf(`the revision is marked: got %t, want %t`, marked, tt.mark != "")
			}
			if tt.mark == "" && len(plan.RevisionLabels) > 0 {
				t.Errorf("revision labels: got %v, want none", plan.RevisionLabels)
			}
			if tt.mark != "" && plan.MarkedRevision.Name != w.revisions["new"] {
				t.Errorf("%s is marked", plan.MarkedRevision.Name)
			}
		})
	}
}

// TestPullJobsSayWhatAnnotationsAndFieldsAskFor shows ASTS-289 and ASTS-290: what a job says, by default, by
// the annotations, and by the fields, which take precedence.
func TestPullJobsSayWhatAnnotationsAndFieldsAskFor(t *testing.T) {
	const from = `{"metadata":{"labels":{"app":"web","tier":"db"},"annotations":{"note":"n"}},"spec":{"imagePullSecrets":[{"name":"login"},` +
		`{"name":"other"}],"containers":[{"name":"main","image":"a:1"}]}}`
	of := func(parallelism any, seconds int64) string {
		return fmt.Sprintf(`{"apiVersion":"apps.kruise.io/v1beta1","kind":"ImagePullJob","metadata":{"name":"REVISION-main","namespace":"shop",
			"labels":{"app":"web","tier":"db","controller.kubernetes.io/hash":"HASH"},"ownerReferences":[{"apiVersion":"apps.kruise.io/v1beta1",
			"kind":"StatefulSet","name":"web","uid":"set","controller":true,"blockOwnerDeletion":true}]},"spec":{"image":"a:2",
			"podSelector":{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"controller-revision-hash","operator":"NotIn",
			"values":["REVISION","HASH"]}]},"parallelism":%v,"pullPolicy":{"backoffLimit":1,"timeoutSeconds":%d},
			"completionPolicy":{"type":"Always","ttlSecondsAfterFinished":600},"pullSecrets":["login","other"],
			"sandboxConfig":{"labels":{"app":"web","tier":"db"},"annotations":{"note":"n"}}}}`, parallelism, seconds)
	}
	annotations := func(parallelism, timeout string) []option {
		return []option{annotated(pub.ImagePreDownloadParallelism, parallelism), annotated(pub.ImagePreDownloadTimeoutSeconds, timeout)}
	}
	seconds, nodes := int32(60), intstr.FromInt32(9)
	fields := pulling(func(s *pub.InPlaceUpdateStrategy) {
		s.ImagePreDownloadParallelism, s.ImagePreDownloadTimeoutSeconds = &nodes, &seconds
	})
	for name, tt := range map[string]struct {
		options []option
		want    string
	}{
		"by default":                     {nil, of(1, 300)},
		"by the annotations":             {annotations("4", "30"), of(4, 30)},
		"by the fields":                  {[]option{fields}, of(9, 60)},
		"by fields and annotations":      {append(annotations("4", "30"), fields), of(9, 60)},
		"annotations that are no number": {annotations("some", "-1"), of(1, 300)},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Make(betweenRevisions(t, 5, 0, from, strings.Replace(from, "a:1", "a:2", 1), tt.options...).Snapshot)
			if len(plan.Pulls) != 1 {
				t.Fatalf("number of pulls: got %d, want 1\n%v", len(plan.Pulls), plan)
			}
			text, err := json.Marshal(plan.Pulls[0].Document)
			if err != nil {
				t.Fatal(err)
			}
			hash := strings.TrimPrefix(plan.UpdateRevision, "web-")
			var want, got any
			for text, into := range map[string]*any{string(text): &got,
				strings.NewReplacer("REVISION", plan.UpdateRevision, "HASH", hash).Replace(tt.want): &want} {
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

// TestPullJobsEnd shows ASTS-292 (part): jobs go when there is nothing to pull ahead any more.
func TestPullJobsEnd(t *testing.T) {
	w := betweenRevisions(t, 5, 0, twoImages, strings.Replace(twoImages, "a:1", "a:2", 1))
	for _, name := range []string{"one", "two"} {
		w.PullJobs = append(w.PullJobs, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	if plan := Make(w.Snapshot); len(plan.EndedPulls) != 0 {
		t.Errorf("number of ended pulls: got %d, want 0\n%v", len(plan.EndedPulls), plan)
	}
	w.Set.Status.CurrentRevision = w.revisions["new"]
	plan := Make(w.Snapshot)
	if len(plan.EndedPulls) != 2 {
		t.Errorf("number of ended pulls: got %d, want 2\n%v", len(plan.EndedPulls), plan)
	}
	if len(plan.Pulls) != 0 {
		t.Errorf("number of pulls: got %d, want 0\n%v", len(plan.Pulls), plan)
	}
}
