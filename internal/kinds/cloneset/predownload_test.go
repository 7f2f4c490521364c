package cloneset

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/rollout"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

func inPlace(change func(*pub.InPlaceUpdateStrategy)) func(*appsv1beta1.CloneSet) {
	return clonesettest.Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) {
		if s.InPlaceUpdateStrategy == nil {
			s.InPlaceUpdateStrategy = &pub.InPlaceUpdateStrategy{}
		}
		change(s.InPlaceUpdateStrategy)
	})
}

func minReady(n int32) func(*appsv1beta1.CloneSet) {
	return inPlace(func(s *pub.InPlaceUpdateStrategy) { s.ImagePreDownloadMinUpdatedReadyPods = &n })
}

// jobOf is a job of the set in the cache.
func jobOf(name, hash string, deleted bool) *metav1.PartialObjectMetadata {
	job := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "job-uid",
		Labels: map[string]string{"app": "web"}}}
	if hash != "" {
		job.Labels[pub.RevisionHash] = hash
	}
	if deleted {
		now := metav1.NewTime(clonesettest.Now)
		job.DeletionTimestamp = &now
	}
	return job
}

// TestImagesThatWillChangeArePulledAhead plans for five pods at nginx:1 and agent:1, of which the new
// template wants others. CS-200, CS-201 and CS-204 to 208.
func TestImagesThatWillChangeArePulledAhead(t *testing.T) {
	const ignored, created = pub.PreDownloadIgnored, pub.PreDownloadCreated
	from := storedRevision(1, clonesettest.TwoImages("nginx:1", "agent:1"))
	stored := storedRevision(2, clonesettest.TwoImages("nginx:2", "agent:1"))
	hash := stored.Labels[pub.RevisionHash]
	job := stored.Name + "-nginx"
	to := clonesettest.TwoImages("nginx:2", "agent:1")
	ignoredOnce := map[string]string{ignored: "true"}
	mark := func(key string) map[string]any { return map[string]any{key: "true"} }
	noFeature := func(s *Snapshot) { s.Features.PreDownload = false }
	unserved := func(s *Snapshot) { s.PullJobsServed = false }
	with := func(jobs ...*metav1.PartialObjectMetadata) func(*Snapshot) {
		return func(s *Snapshot) { s.PullJobs = jobs }
	}
	current := func(set *appsv1beta1.CloneSet) { set.Status.CurrentRevision = stored.Name }
	allAtOnce := func(value string) func(*appsv1beta1.CloneSet) {
		return clonesettest.Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) { s.MaxUnavailable = new(intstr.FromString(value)) })
	}
	onDelete := func(set *appsv1beta1.CloneSet) {
		set.Spec.UpdateStrategy.Type = appsv1beta1.OnDeleteCloneSetUpdateStrategyType
	}
	newContainer := func(set *appsv1beta1.CloneSet) {
		clonesettest.SetTemplate(set, `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1"},{"name":"agent","image":"agent:1"},{"name":"more","image":"m:1"}]}}`)
	}
	tests := map[string]struct {
		set      func(*appsv1beta1.CloneSet)
		labels   map[string]string // of the stored revision 2
		snapshot func(*Snapshot)
		updated  int // ready pods at revision 2
		jobs     []string
		ended    []string
		mark     map[string]any
		says     string
	}{
		"CS-201 the container whose image differs": {set: to, jobs: []string{job}, mark: mark(created)},
		"CS-200 a gate is off":                     {set: to, snapshot: noFeature},
		"CS-200 the kind is not served":            {set: to, snapshot: unserved},
		"CS-201 nothing differs between revisions": {set: clonesettest.Both(to, current)},
		"CS-201 an existing job is left":           {set: to, snapshot: with(jobOf(job, hash, false)), mark: mark(created)},
		"CS-201 paused: the time is used": {set: clonesettest.Both(to,
			clonesettest.Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) { s.Paused = true })), jobs: []string{job}, mark: mark(created)},
		"CS-201 a failed write is left alone": {set: to, snapshot: func(s *Snapshot) { s.PullJobsHeldUntil = clonesettest.Now.Add(1) }},
		"CS-096, CS-201 unusable numbers": {set: clonesettest.Both(to,
			clonesettest.Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) { s.Partition = new(intstr.FromString("x")) }))},
		"CS-204 too few updated pods are ready": {set: clonesettest.Both(to, minReady(2)), updated: 1,
			says: "when 2 updated pods are ready, 1 is"},
		"CS-204 enough are": {set: clonesettest.Both(to, minReady(2)), updated: 2, jobs: []string{job}, mark: mark(created)},
		"CS-345 50% of five are three, two are not": {set: clonesettest.Both(to,
			clonesettest.Annotated(pub.ImagePreDownloadMinUpdatedReadyPods, "50%")), updated: 2,
			says: "when 3 updated pods are ready"},
		"CS-345 50% of five are three, three are": {set: clonesettest.Both(to,
			clonesettest.Annotated(pub.ImagePreDownloadMinUpdatedReadyPods, "50%")), updated: 3,
			jobs: []string{job}, mark: mark(created)},
		"CS-345 the field wins over the annotation": {set: clonesettest.Both(to, minReady(1),
			clonesettest.Annotated(pub.ImagePreDownloadMinUpdatedReadyPods,
				"100%")), updated: 1, jobs: []string{job}, mark: mark(created)},
		"CS-259 a number there is of v1alpha1 alone": {set: clonesettest.Both(to,
			clonesettest.Annotated(pub.ImagePreDownloadMinUpdatedReadyPods, "4")),
			jobs: []string{job}, mark: mark(created)},

		"CS-205 policy ReCreate": {set: clonesettest.Both(to, clonesettest.Policy(appsv1beta1.ReCreateCloneSetPodUpdatePolicy)),
			mark: mark(ignored),
			says: "the policy is ReCreate"},
		"CS-205 no policy is ReCreate": {set: clonesettest.Both(to, clonesettest.Policy("")), mark: mark(ignored)},
		"CS-205 OnDelete": {set: clonesettest.Both(to, onDelete), mark: mark(ignored),
			says: "pods are not updated by themselves"},
		"CS-205 no rollingUpdate": {set: clonesettest.Both(to,
			func(set *appsv1beta1.CloneSet) { set.Spec.UpdateStrategy.RollingUpdate = nil }), mark: mark(ignored)},
		"CS-205 three pods": {set: clonesettest.Both(to, clonesettest.Replicas(3)), mark: mark(ignored),
			says: "replicas is 3, and images are pulled ahead for more than 3"},
		"CS-205 four pods": {set: clonesettest.Both(to, clonesettest.Replicas(4)), jobs: []string{job}, mark: mark(created)},
		"CS-205 all at once": {set: clonesettest.Both(to, allAtOnce("100%")), mark: mark(ignored),
			says: "maxUnavailable lets all 5 pods be updated at once"},
		"CS-205 all at once but for a partition": {set: clonesettest.Both(to, allAtOnce("100%"), clonesettest.Partition(1)), jobs: []string{job},
			mark: mark(created)},
		"CS-205 rounded down it is one less":      {set: clonesettest.Both(to, allAtOnce("90%")), jobs: []string{job}, mark: mark(created)},
		"CS-205 a container more is not in place": {set: newContainer, mark: mark(ignored), says: "the change cannot be applied in place"},
		"CS-205 nor for those that insist": {set: clonesettest.Both(newContainer,
			clonesettest.Policy(appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy)),
			mark: mark(ignored)},

		"CS-206 created once is enough":           {set: to, labels: map[string]string{created: "true"}},
		"CS-206 ignored is not said twice":        {set: clonesettest.Both(to, clonesettest.Replicas(3)), labels: ignoredOnce},
		"CS-206 not before all jobs can be there": {set: to, snapshot: with(jobOf(job, hash, true))},
		"CS-207 equal revisions end all jobs": {set: clonesettest.Both(to, current), labels: map[string]string{created: "true"},
			snapshot: with(jobOf(job, hash, false), jobOf("a", "", false), jobOf("b", "x", false)), ended: []string{"a", "b", job}},
		"CS-207 those that end already are left": {set: clonesettest.Both(to, current), snapshot: with(jobOf(job, hash, true))},
		"IMG-191 jobs of another template end": {set: to, labels: map[string]string{created: "true"},
			snapshot: with(jobOf(job, hash, false), jobOf("old", "x", false)), ended: []string{"old"}},
		"CS-208, CS-352 replicas grew": {set: to, labels: ignoredOnce, jobs: []string{job},
			mark: map[string]any{created: "true", ignored: nil}},
		"CS-208, CS-352 ignored holds while a reason does": {set: clonesettest.Both(to, allAtOnce("100%")), labels: ignoredOnce},
		"CS-208, CS-352 a partition was set": {set: clonesettest.Both(to, allAtOnce("100%"), clonesettest.Partition(2)), labels: ignoredOnce,
			jobs: []string{job}, mark: map[string]any{created: "true", ignored: nil}},
		"CS-208, CS-352 what was created is not looked into": {set: clonesettest.Both(to, clonesettest.Replicas(2)),
			labels: map[string]string{created: "true"}},
		"CS-208, CS-352 a revision that comes back is pulled again": {set: clonesettest.TwoImages("nginx:1", "agent:1"),
			jobs: []string{from.Name + "-nginx"},
			mark: mark(created),
			snapshot: func(s *Snapshot) {
				s.Set.Status.CurrentRevision = stored.Name
				s.Revisions[0] = from.DeepCopy()
				s.Revisions[0].Labels[created], s.Revisions[0].Labels[ignored] = "true", "true"
			}},
		"CS-201 two containers, in a revision that is not stored yet": {set: clonesettest.TwoImages("nginx:3", "agent:3"), mark: mark(created),
			jobs: []string{"web-*-agent", "web-*-nginx"}},
		"CS-201 images stay": {set: func(set *appsv1beta1.CloneSet) {
			clonesettest.SetTemplate(set, `{"metadata":{"labels":{"app":"web","more":"x"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1"},{"name":"agent","image":"agent:1"}]}}`)
		}},
		"CS-071 the set is being deleted": {set: func(set *appsv1beta1.CloneSet) {
			to(set)
			now := metav1.NewTime(clonesettest.Now)
			set.DeletionTimestamp = &now
		}, snapshot: with(jobOf(job, hash, false))},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			second := stored.DeepCopy()
			for key, value := range tt.labels {
				second.Labels[key] = value
			}
			set := clonesettest.Set(5, func(set *appsv1beta1.CloneSet) { set.Status.CurrentRevision = from.Name }, tt.set)
			world := func(s *Snapshot) {
				s.Features.PreDownload, s.PullJobsServed = true, true
				s.Revisions = []*appsv1.ControllerRevision{from, second}
				for i := range int(*set.Spec.Replicas) {
					at := from.Name
					if i < tt.updated {
						at = stored.Name
					}
					s.Pods = append(s.Pods, clonesettest.Pod(fmt.Sprintf("web-%d", i), at))
				}
				if tt.snapshot != nil {
					tt.snapshot(s)
				}
			}
			plan := planFor(set, world)
			var jobs, ended []string
			for _, job := range plan.Pulls {
				jobs = append(jobs, strings.Replace(job.Name, "web-"+plan.hashOfNew()+"-", "web-*-", 1))
			}
			for _, job := range plan.EndedPulls {
				ended = append(ended, job.Name)
			}
			if diff := cmp.Diff(tt.jobs, jobs); diff != "" {
				t.Errorf("jobs: %s", diff)
			}
			if diff := cmp.Diff(tt.ended, ended); diff != "" {
				t.Errorf("ended: %s", diff)
			}
			if diff := cmp.Diff(tt.mark, plan.RevisionLabels); diff != "" {
				t.Errorf("labels: %s", diff)
			}
			if !strings.Contains(plan.String(), tt.says) {
				t.Errorf("does not say %q:\n%s", tt.says, plan)
			}
			if len(jobs)+len(ended)+len(tt.mark) > 0 && plan.Empty() {
				t.Error("the plan calls itself empty")
			}
		})
	}
}

// hashOfNew is the hash of a revision that the plan makes; it stands for no name otherwise.
func (p *Plan) hashOfNew() string {
	if p.NewRevision == nil {
		return "-"
	}
	return p.NewRevision.Labels[pub.RevisionHash]
}

// TestPullJobDocument compares what is sent (CS-202) and what the user may change (CS-203).
func TestPullJobDocument(t *testing.T) {
	set := clonesettest.Set(5, func(set *appsv1beta1.CloneSet) {
		clonesettest.SetTemplate(set, `{"metadata":{"labels":{"app":"web","tier":"front"},"annotations":{"note":"n"}},"spec":{"imagePullSecrets":[{"name":"login"},{"name":"other"}],"containers":[{"name":"nginx","image":"nginx:1"}]}}`)
		set.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpExists}}
	})
	first := planFor(set).NewRevision
	set.Status.CurrentRevision = first.Name
	document := func(t *testing.T, change ...func(*appsv1beta1.CloneSet)) map[string]any {
		t.Helper()
		wanted := clonesettest.Set(5, clonesettest.Both(change...))
		wanted.Spec.Selector, wanted.Status = set.Spec.Selector.DeepCopy(), set.Status
		clonesettest.SetTemplate(wanted, strings.Replace(string(set.Spec.Template.Raw()), "nginx:1", "nginx:2", 1))
		plan := planFor(wanted, func(s *Snapshot) {
			s.Features.PreDownload, s.PullJobsServed = true, true
			s.Revisions = []*appsv1.ControllerRevision{first}
		})
		if len(plan.Pulls) != 1 {
			t.Fatalf("no job:\n%s", plan)
		}
		if len(wanted.Spec.Selector.MatchExpressions) != 1 {
			t.Error("the selector of the set was changed")
		}
		text := strings.ReplaceAll(asJSON(t, plan.Pulls[0].Document), plan.hashOfNew(), "HASH")
		var out map[string]any
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatal(err)
		}
		(&unstructured.Unstructured{Object: plan.Pulls[0].Document}).DeepCopy() // panics on types that are not of JSON
		return out
	}
	var want map[string]any
	if err := json.Unmarshal([]byte(`{
		"apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
		"metadata": {"name": "web-HASH-nginx", "namespace": "default",
			"labels": {"app": "web", "tier": "front", "controller.kubernetes.io/hash": "HASH"},
			"ownerReferences": [{"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web", "uid": "set-uid", "controller": true, "blockOwnerDeletion": true}]},
		"spec": {"image": "nginx:2",
			"podSelector": {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"},
				{"key": "controller-revision-hash", "operator": "NotIn", "values": ["web-HASH", "HASH"]}]},
			"parallelism": 1, "pullPolicy": {"backoffLimit": 1, "timeoutSeconds": 300},
			"completionPolicy": {"type": "Always", "ttlSecondsAfterFinished": 600},
			"pullSecrets": ["login", "other"],
			"sandboxConfig": {"labels": {"app": "web", "tier": "front"}, "annotations": {"note": "n"}}}}`), &want); err != nil {
		t.Fatal(err)
	}
	t.Run("CS-202", func(t *testing.T) {
		if diff := cmp.Diff(want, document(t)); diff != "" {
			t.Errorf("document (-want +got):\n%s", diff)
		}
	})
	seconds := int32(60)
	for name, tt := range map[string]struct {
		parallelism any
		change      func(*pub.InPlaceUpdateStrategy)
	}{
		"CS-203 a number": {float64(5), func(s *pub.InPlaceUpdateStrategy) { s.ImagePreDownloadParallelism = new(intstr.FromInt32(5)) }},
		"CS-203 text":     {float64(5), func(s *pub.InPlaceUpdateStrategy) { s.ImagePreDownloadParallelism = new(intstr.FromString("5")) }},
		"CS-203 what admission did not see goes to the API server as it is": {"5%",
			func(s *pub.InPlaceUpdateStrategy) { s.ImagePreDownloadParallelism = new(intstr.FromString("5%")) }},
	} {
		t.Run(name, func(t *testing.T) {
			spec := object(document(t, inPlace(tt.change),
				inPlace(func(s *pub.InPlaceUpdateStrategy) { s.ImagePreDownloadTimeoutSeconds = &seconds })), "spec")
			if spec["parallelism"] != tt.parallelism {
				t.Errorf(`spec parallelism: got %v, want %v; parallelism %v, pullPolicy %v`, spec["parallelism"],
					tt.parallelism,
					spec["parallelism"], spec["pullPolicy"])
			}
			if got := object(spec, "pullPolicy")["timeoutSeconds"]; got != float64(60) {
				t.Errorf(`timeout of pulls in seconds: got %v, want %v; parallelism %v, pullPolicy %v`, got, float64(60),
					spec["parallelism"], spec["pullPolicy"])
			}
		})
	}
}

// TestPercentageSurvivesConversion: what a v1alpha1 user wrote is what the planner sees (CS-203, CS-254,
// CS-345).
func TestPercentageSurvivesConversion(t *testing.T) {
	alpha := &appsv1alpha1.CloneSet{}
	alpha.Annotations = map[string]string{pub.ImagePreDownloadMinUpdatedReadyPods: "30%", pub.ImagePreDownloadParallelism: "4",
		pub.ImagePreDownloadTimeoutSeconds: "60"}
	alpha.Spec.UpdateStrategy.Type = appsv1alpha1.InPlaceIfPossibleCloneSetUpdateStrategyType
	n := int32(10)
	alpha.Spec.Replicas = &n
	beta := alpha.ToV1beta1()
	p := podplan.New(workloadOf(beta, Features{}), &podplan.Snapshot{}, &podplan.Plan{Limits: rollout.Limits{Replicas: int(n)}})
	if got := p.MinUpdatedReady(); got != 3 {
		t.Errorf("%d pods must be ready, want 3", got)
	}
	if s := p.Workload.Strategy; s == nil {
		t.Error("strategy of the workload: got nil, want a value")
	} else if got := s.ImagePreDownloadParallelism.IntValue(); got != 4 {
		t.Errorf("image pre download parallelism: got %d, want 4; strategy %+v", got, s)
	} else if *s.ImagePreDownloadTimeoutSeconds != 60 {
		t.Errorf("timeout of pulls in seconds: got %d, want 60; strategy %+v", *s.ImagePreDownloadTimeoutSeconds, s)
	}
	if back := appsv1alpha1.CloneSetFromV1beta1(beta); back.Annotations[pub.ImagePreDownloadMinUpdatedReadyPods] != "30%" {
		t.Errorf("the percentage is lost on the way back: %v", back.Annotations)
	}
}

func object(document map[string]any, key string) map[string]any {
	value, _ := document[key].(map[string]any)
	return value
}
