package advancedcronjob

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Kind is a kind of children.
type Kind string

// Kinds of children, as status.type tells them (ACJ-015).
const (
	Job              Kind = "Job"
	BroadcastJob     Kind = "BroadcastJob"
	ImageListPullJob Kind = "ImageListPullJob"
)

// Kinds are all of them.
var Kinds = []Kind{Job, BroadcastJob, ImageListPullJob}

// Name is that of the kind of AdvancedCronJobs.
const Name = "AdvancedCronJob"

// APIVersion is that in which children of the kind are created.
func (k Kind) APIVersion() string {
	if k == Job {
		return batchv1.SchemeGroupVersion.String()
	}
	return appsv1beta1.GroupVersion.String()
}

// Templates are the kinds of which a template is given; there should be one (ACJ-024).
func Templates(template *appsv1beta1.CronJobTemplate) (kinds []Kind) {
	if template.JobTemplate != nil {
		kinds = append(kinds, Job)
	}
	if template.BroadcastJobTemplate != nil {
		kinds = append(kinds, BroadcastJob)
	}
	if template.ImageListPullJobTemplate != nil {
		kinds = append(kinds, ImageListPullJob)
	}
	return kinds
}

// Phase is how far a run is.
type Phase int

// Phases of a run (ACJ-031).
const (
	Active Phase = iota
	Succeeded
	Failed
)

// String says it in a word.
func (p Phase) String() string { return []string{"active", "succeeded", "failed"}[p] }

// Child is what was created for one run.
type Child struct {
	Object metav1.Object
	Kind   Kind
	Phase  Phase
	// Why says why it failed, if that is known.
	Why string
	// Started is when it started, Nominal the time of the schedule; each zero if it is not known.
	Started, Nominal time.Time
}

// ChildOf reads an object of a kind of children.
func ChildOf(object metav1.Object) Child {
	c := Child{Object: object}
	if at, err := time.Parse(time.RFC3339, object.GetAnnotations()[pub.ScheduledAt]); err == nil {
		c.Nominal = at
	}
	var started *metav1.Time
	switch job := object.(type) {
	case *batchv1.Job:
		c.Kind, started = Job, job.Status.StartTime
		for i := range job.Status.Conditions {
			condition := &job.Status.Conditions[i]
			c.ended(string(condition.Type), condition.Status, condition.Message)
		}
	case *appsv1beta1.BroadcastJob:
		c.Kind, started = BroadcastJob, job.Status.StartTime
		for i := range job.Status.Conditions {
			condition := &job.Status.Conditions[i]
			c.ended(string(condition.Type), condition.Status, condition.Message)
		}
	case *appsv1beta1.ImageListPullJob:
		c.Kind, started = ImageListPullJob, job.Status.StartTime
		switch {
		case job.Status.CompletionTime == nil:
		case job.Status.Succeeded == job.Status.Desired:
			c.Phase = Succeeded
		default:
			c.Phase, c.Why = Failed,
				fmt.Sprintf("%d of %d images were pulled everywhere", job.Status.Succeeded,
					job.Status.Desired)
		}
	}
	if started != nil {
		c.Started = started.Time
	}

	return c
}

func (c *Child) ended(condition string, status corev1.ConditionStatus, message string) {
	switch {
	case status != corev1.ConditionTrue:
	case condition == string(batchv1.JobFailed):
		c.Phase, c.Why = Failed, message
	case condition == string(batchv1.JobComplete) && c.Phase == Active:
		c.Phase = Succeeded
	}
}

// String names the child.
func (c Child) String() string { return string(c.Kind) + " " + c.Object.GetName() }

// Held tells whether its run has not been noted yet.
func (c Child) Held() bool { return slices.Contains(c.Object.GetFinalizers(), pub.UnrecordedRun) }

func (c Child) going() bool { return c.Object.GetDeletionTimestamp() != nil }

// Same tells whether nothing changed that plans read.
func (c Child) Same(other Child) bool {
	return c.Phase == other.Phase && c.Started.Equal(other.Started) && c.Nominal.Equal(other.Nominal) &&
		c.Held() == other.Held() &&
		c.going() == other.going() && c.Object.GetUID() == other.Object.GetUID() &&
		OwnerOf(c.Object) == OwnerOf(other.Object)
}

// OwnerOf is the UID of the AdvancedCronJob that controls an object, whatever version it names (ACJ-030);
// empty if none does.
func OwnerOf(object metav1.Object) types.UID {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil || owner.Kind != Name ||
		!strings.HasPrefix(owner.APIVersion, appsv1beta1.GroupVersion.Group+"/") {
		return ""
	}
	return owner.UID
}

// maxName is how long names of children may be: as long as labels that have them as values.
const maxName = 63

// NameOf is the name of the child of a run.
func NameOf(cronJob string, at time.Time) string {
	suffix := fmt.Sprintf("-%d", at.Unix())
	if full := cronJob + suffix; len(full) <= maxName {
		return full
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(cronJob + suffix))
	suffix = fmt.Sprintf("-%08x%s", sum.Sum32(), suffix)
	return cronJob[:maxName-len(suffix)] + suffix
}

// NewChild is the document of the child of a run (ACJ-070). The template is taken as it was written, fields
// that our types do not know included.
func NewChild(cronJob *appsv1beta1.AdvancedCronJob, kind Kind, run *Run) (map[string]any, error) {
	var raw []byte
	var err error
	switch template := &cronJob.Spec.Template; kind {
	case Job:
		raw = template.JobTemplate.Raw()
	case BroadcastJob:
		raw, err = json.Marshal(template.BroadcastJobTemplate)
	case ImageListPullJob:
		raw, err = json.Marshal(template.ImageListPullJobTemplate)
	}
	given := map[string]any{}
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(raw, &given)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the template: %w", err)
	}

	metadata, _ := given["metadata"].(map[string]any)
	annotations := map[string]any{}
	if written, ok := metadata["annotations"].(map[string]any); ok {
		annotations = written
	}
	at := run.Time.Format(time.RFC3339)
	annotations[pub.ScheduledAt], annotations[batchv1.CronJobScheduledTimestampAnnotation] = at, at
	child := map[string]any{"namespace": cronJob.Namespace, "name": run.Name, "annotations": annotations,
		"finalizers": []any{pub.UnrecordedRun},
		"ownerReferences": []any{map[string]any{"apiVersion": appsv1beta1.GroupVersion.String(), "kind": Name,
			"name": cronJob.Name, "uid": string(cronJob.UID), "controller": true,
			"blockOwnerDeletion": true}}}
	if labels, ok := metadata["labels"].(map[string]any); ok {
		child["labels"] = labels
	}
	document := map[string]any{"apiVersion": kind.APIVersion(), "kind": string(kind), "metadata": child}
	if spec, ok := given["spec"]; ok {
		document["spec"] = spec
	}

	return document, nil
}
