//go:build integration

package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// schedule is an AdvancedCronJob that never runs by itself, unless it says otherwise.
func schedule(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	return document(t, `{apiVersion: apps.kruise.io/v1beta1, kind: AdvancedCronJob, metadata: {name: `+name+`, namespace: default}, spec: {schedule: "0 0 30 2 *", `+spec+`}}`)
}

const (
	scheduledPods = `template: {spec: {restartPolicy: Never, containers: [{name: c, image: "app:v1"}]}}`
	scheduledPull = `template: {imageListPullJobTemplate: {metadata: {labels: {a: b}, annotations: {c: d}}, spec: {images: ["a:1"], completionPolicy: {}, selector: {names: [nowhere]}}}}`
)

// ACJ-014, ACJ-016, ACJ-017, ACJ-011 (part), ACJ-012 (part): what the API server and the webhooks make of
// what users write.
func TestAdvancedCronJobsAreStored(t *testing.T) {
	for name, test := range map[string]struct{ spec, kept string }{
		"job":       {`template: {jobTemplate: {metadata: {labels: {a: b}}, spec: {future: {x: [1]}, ` + scheduledPods + `}}}`, "future"},
		"broadcast": {`template: {broadcastJobTemplate: {metadata: {labels: {a: b}, annotations: {c: d}}, spec: {` + scheduledPods + `}}}`, `"metadata":{"annotations":{"c":"d"},"labels":{"a":"b"}}`},
		"pull":      {scheduledPull, `"metadata":{"annotations":{"c":"d"},"labels":{"a":"b"}}`},
	} {
		object := schedule(t, "stored-"+name, test.spec)
		object.Object["status"] = map[string]any{"type": "Mine", "lastScheduleTime": "2020-01-01T00:00:00Z"}
		if err := kube.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		text := asJSON(t, object.Object)
		if !strings.Contains(text, test.kept) {
			t.Errorf("%s: got %s, want %s in it", name, text, test.kept)
		}
		if strings.Contains(text, "Mine") {
			t.Errorf("%s: the status of its author stays: %s", name, text)
		}
		if !strings.Contains(text, `"failedJobsHistoryLimit":1`) {
			t.Errorf("%s: got %s, want one failed job kept", name, text)
		}
		if strings.Contains(text, `"restartPolicy"`) != strings.Contains(text, `"dnsPolicy":"ClusterFirst"`) {
			t.Errorf("%s: the template is completed in part: %s", name, text)
		}
		if err := wait(func() error {
			stored := &appsv1beta1.AdvancedCronJob{}
			err := kube.Get(t.Context(), client.ObjectKeyFromObject(object), stored)
			if err == nil && (stored.Status.Type == "" || stored.Status.Type == "Mine" || stored.Status.LastScheduleTime != nil) {
				err = fmt.Errorf("%+v", stored.Status)
			}
			return err
		}); err != nil {
			t.Errorf("ACJ-015, ACJ-016: %v", err)
		}
	}
	bad := schedule(t, "bad", `concurrencyPolicy: Queue, timeZone: Local, template: {}`)
	if err := kube.Create(t.Context(), bad); !apierrors.IsInvalid(err) {
		t.Errorf("ACJ-017: creation: got %v, want it refused as invalid", err)
	} else if !names(fieldsOf(t, err), "spec.concurrencyPolicy") {
		t.Errorf("ACJ-017: got %v, want spec.concurrencyPolicy in it", err)
	}
	unstructured.RemoveNestedField(bad.Object, "spec", "concurrencyPolicy")
	if err := kube.Create(t.Context(), bad); !apierrors.IsInvalid(err) {
		t.Errorf("a bad time zone and template: got %v, want them refused as invalid", err)
	} else {
		for _, field := range []string{"spec.timeZone", "spec.template"} {
			if !names(fieldsOf(t, err), field) {
				t.Errorf("a bad time zone and template: got %v, want %s in it", err, field)
			}
		}
	}
}

// ACJ-111, ACJ-112, ACJ-113 (part): an object with a template that v1alpha1 lacks is read, listed and written
// in v1alpha1, and keeps it.
func TestAdvancedCronJobsInV1alpha1(t *testing.T) {
	object := schedule(t, "both-versions", scheduledPull)
	if err := kube.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	var list appsv1alpha1.AdvancedCronJobList
	if err := kube.List(t.Context(), &list, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list.Items, func(c appsv1alpha1.AdvancedCronJob) bool { return c.Name == "both-versions" })
	if i < 0 {
		t.Fatalf("v1alpha1 lists no both-versions: %+v", list.Items)
	}
	if text := list.Items[i].Annotations[pub.ImageListTemplate]; !strings.Contains(text, `"images":["a:1"]`) {
		t.Fatalf("the template for image lists in v1alpha1: got %s, want image a:1 in it", text)
	}
	old := &list.Items[i]
	old.Spec.Schedule = "0 0 31 4 *"
	old.ManagedFields = nil
	if err := kube.Update(t.Context(), old); err != nil && !apierrors.IsConflict(err) {
		t.Fatal(err)
	} else if err != nil { // its status was written meanwhile
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(old), old); err != nil {
			t.Fatal(err)
		}
		old.Spec.Schedule = "0 0 31 4 *"
		if err := kube.Update(t.Context(), old); err != nil {
			t.Fatal(err)
		}
	}
	stored := &appsv1beta1.AdvancedCronJob{}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(object), stored); err != nil {
		t.Fatal(err)
	}
	if stored.Spec.Schedule != "0 0 31 4 *" {
		t.Errorf("schedule: got %s, want 0 0 31 4 *", stored.Spec.Schedule)
	}
	if template := stored.Spec.Template.ImageListPullJobTemplate; template == nil {
		t.Errorf("there is no template for image lists: %+v", stored)
	} else if template.Metadata.Annotations["c"] != "d" {
		t.Errorf("annotations of the template: got %v, want c to be d", template.Metadata.Annotations)
	} else if template.Spec.ImagePullPolicy != "IfNotPresent" {
		t.Errorf("pull policy of the template: got %s, want IfNotPresent", template.Spec.ImagePullPolicy)
	}
	if text := stored.Annotations[pub.ImageListTemplate]; text != "" {
		t.Errorf("the annotation in v1beta1: got %s, want none", text)
	}
}

// ACJ-040, ACJ-030 (part), ACJ-090 (part), ACJ-103 (part): creation, end and deletion of a child of each kind
// are seen at once, from a schedule that would look again much later; a child that names an old version is
// one too.
func TestChildrenOfAdvancedCronJobs(t *testing.T) {
	for kind, template := range map[string]string{"Job": `template: {jobTemplate: {spec: {` + scheduledPods + `}}}`,
		"BroadcastJob": `template: {broadcastJobTemplate: {spec: {` + scheduledPods + `}}}`, "ImageListPullJob": scheduledPull} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			name := "children-" + strings.ToLower(kind)
			object := schedule(t, name, "failedJobsHistoryLimit: 0, "+template)
			if err := kube.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			cronJob := &appsv1beta1.AdvancedCronJob{}
			active := func(want ...string) {
				t.Helper()
				if err := wait(func() error {
					if err := kube.Get(t.Context(), client.ObjectKeyFromObject(object), cronJob); err != nil {
						return err
					}
					var got []string
					for _, reference := range cronJob.Status.Active {
						got = append(got, reference.Name)
					}
					if !slices.Equal(got, want) {
						return fmt.Errorf("active are %v, not %v", got, want)
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			child := func(suffix string) client.Object {
				meta := metav1.ObjectMeta{Namespace: "default", Name: name + suffix, OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1alpha1",
					Kind: "AdvancedCronJob", Name: name, UID: object.GetUID(), Controller: new(true)}}}
				switch kind {
				case "Job":
					return &batchv1.Job{ObjectMeta: meta, Spec: cronJob.Spec.Template.JobTemplate.Spec}
				case "BroadcastJob":
					job := &appsv1beta1.BroadcastJob{ObjectMeta: meta, Spec: cronJob.Spec.Template.BroadcastJobTemplate.Spec}
					job.Spec.Template.Spec.NodeSelector = map[string]string{"nowhere": "1"}
					return job
				}
				list := &appsv1beta1.ImageListPullJob{ObjectMeta: meta, Spec: cronJob.Spec.Template.ImageListPullJobTemplate.Spec}
				list.Spec.CompletionPolicy.Type = appsv1beta1.CompletionNever
				return list
			}
			active()
			first, second := child("-a"), child("-b")
			for _, object := range []client.Object{first, second} {
				if err := kube.Create(t.Context(), object); err != nil {
					t.Fatal(err)
				}
			}
			active(name+"-a", name+"-b")
			if err := kube.Delete(t.Context(), second, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
				t.Fatal(err)
			}
			active(name + "-a")
			if kind != "Job" { // the ends of others are told by their controllers
				return
			}
			job := first.(*batchv1.Job)
			now := metav1.Now()
			job.Status.StartTime = &now
			job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue, LastTransitionTime: now, Reason: "Test", Message: "by a test"},
				{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, LastTransitionTime: now, Reason: "Test", Message: "by a test"}}
			if err := kube.Status().Update(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			active()
			if err := wait(func() error {
				if err := kube.Get(t.Context(), client.ObjectKeyFromObject(job), job); !apierrors.IsNotFound(err) {
					return fmt.Errorf("ACJ-090: it is kept: %w", err)
				}
				var events corev1.EventList
				if err := kube.List(t.Context(), &events, client.InNamespace("default"), client.MatchingFields{"involvedObject.uid": string(object.GetUID())}); err != nil {
					return err
				}
				for _, reason := range []string{"SawCompletedJob", "SuccessfulDelete"} {
					if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.Reason == reason }) {
						return errors.New("no event " + reason)
					}
				}
				return nil
			}); err != nil {
				t.Errorf("events of the run: %v", err)
			}
		})
	}
}

// ACJ-070 (part), ACJ-073 (part): runs of a schedule, with the manager's own rights.
func TestAdvancedCronJobRuns(t *testing.T) {
	object := schedule(t, "runs", `concurrencyPolicy: Forbid, template: {jobTemplate: {metadata: {labels: {a: b}}, spec: {`+scheduledPods+`}}}`)
	if err := unstructured.SetNestedField(object.Object, "@every 1s", "spec", "schedule"); err != nil {
		t.Fatal(err)
	}
	if err := kube.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error {
		cronJob := &appsv1beta1.AdvancedCronJob{}
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(object), cronJob); err != nil {
			return err
		}
		if len(cronJob.Status.Active) != 1 || cronJob.Status.LastScheduleTime == nil {
			return fmt.Errorf("%+v", cronJob.Status)
		}
		job := &batchv1.Job{}
		if err := kube.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: cronJob.Status.Active[0].Name}, job); err != nil {
			return err
		}
		at := cronJob.Status.LastScheduleTime.UTC().Format("2006-01-02T15:04:05Z")
		if job.Labels["a"] != "b" || slices.Contains(job.Finalizers, pub.UnrecordedRun) || job.Annotations[pub.ScheduledAt] != at ||
			job.Name != fmt.Sprintf("runs-%d", cronJob.Status.LastScheduleTime.Unix()) || !metav1.IsControlledBy(job, cronJob) {
			return fmt.Errorf("%+v", job.ObjectMeta)
		}
		return nil
	}); err != nil {
		t.Errorf("the job of the run: %v", err)
	}
	if err := kube.Delete(t.Context(), object); err != nil {
		t.Errorf("deleting the AdvancedCronJob: %v", err)
	}
}
