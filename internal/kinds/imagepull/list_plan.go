package imagepull

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/imageref"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// ListPlan defines what to do for an ImageListPullJob.
type ListPlan struct {
	// Hash is the label of the list and of its jobs, if it changes (IMG-151).
	Hash      string
	Relabel   bool
	Create    []*appsv1beta1.ImagePullJob
	Delete    []*appsv1beta1.ImagePullJob
	Status    *appsv1beta1.ImageListPullJobStatus
	DeleteAll bool // deletes the list itself (IMG-156)
	After     time.Duration
}

// templateHash returns the hash of the job template of a list.
func templateHash(template *appsv1beta1.ImagePullJobTemplate) string {
	data, _ := json.Marshal(template) // plain data
	sum := fnv.New32a()
	_, _ = sum.Write(data)
	return rand.SafeEncodeString(fmt.Sprint(sum.Sum32()))
}

// childTemplate returns the template of a list's jobs. It has no TTL, so that no job is deleted before the
// list has ended, and it has the defaults that admission would add, so that it can be compared with existing
// jobs, but not those names of secrets that admission refuses and that were stored before. A pull gets no more time than its job, which would not be admitted otherwise.
func childTemplate(template *appsv1beta1.ImagePullJobTemplate) appsv1beta1.ImagePullJobTemplate {
	t := *template.DeepCopy()
	t.PullSecrets = slices.DeleteFunc(t.PullSecrets,
		func(name string) bool { return imageref.CheckSecretName(name) != nil })
	t.CompletionPolicy.TTLSecondsAfterFinished = nil
	if t.CompletionPolicy.Type == "" {
		t.CompletionPolicy.Type = appsv1beta1.CompletionAlways
	}
	if t.PullPolicy == nil {
		t.PullPolicy = &appsv1beta1.PullPolicy{}
	}

	timeout, backoff := int32(defaultTimeout), int32(defaultBackoff)
	if t.PullPolicy.TimeoutSeconds == nil {
		t.PullPolicy.TimeoutSeconds = &timeout
	}

	if deadline := t.CompletionPolicy.ActiveDeadlineSeconds; deadline != nil &&
		t.CompletionPolicy.Type == appsv1beta1.CompletionAlways {
		*deadline = max(*deadline, 0)
		*t.PullPolicy.TimeoutSeconds = int32(min(int64(*t.PullPolicy.TimeoutSeconds), *deadline))
	}

	if t.PullPolicy.BackoffLimit == nil {
		t.PullPolicy.BackoffLimit = &backoff
	}
	if t.ImagePullPolicy == "" {
		t.ImagePullPolicy = appsv1beta1.PullIfNotPresent
	}

	return t
}

// PlanList makes the plan of a list and the jobs that it has created (IMG-150 to IMG-161).
func PlanList(
	list *appsv1beta1.ImageListPullJob, children []*appsv1beta1.ImagePullJob, now time.Time,
) *ListPlan {
	p := &ListPlan{}
	if list.DeletionTimestamp != nil {
		return p
	}

	if end := list.Status.CompletionTime; end != nil {
		if ttl := list.Spec.CompletionPolicy.TTLSecondsAfterFinished; ttl != nil {
			if left := end.Add(time.Duration(*ttl) * time.Second).Sub(now); left > 0 {
				p.After = left
			} else {
				p.DeleteAll = true
			}
		}
		return p
	}

	p.Hash = templateHash(&list.Spec.ImagePullJobTemplate)
	p.Relabel = list.Labels[pub.ControllerRevisionHash] != p.Hash
	wanted := childTemplate(&list.Spec.ImagePullJobTemplate)
	kept := map[string]*appsv1beta1.ImagePullJob{}
	children = slices.Clone(children)
	slices.SortFunc(children, func(a, b *appsv1beta1.ImagePullJob) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})

	for _, child := range children {
		if child.DeletionTimestamp != nil {
			continue
		}
		present := childTemplate(&child.Spec.ImagePullJobTemplate)
		consistent := child.Labels[pub.ControllerRevisionHash] == p.Hash ||
			equality.Semantic.DeepEqual(present, wanted)
		if kept[child.Spec.Image] != nil || !consistent ||
			!slices.Contains(list.Spec.Images, child.Spec.Image) {
			p.Delete = append(p.Delete, child)
			continue
		}
		kept[child.Spec.Image] = child
	}

	for _, image := range list.Spec.Images {
		if kept[image] == nil {
			p.Create = append(p.Create, newChild(list, image, p.Hash))
		}
	}

	status := listStatus(list, kept, now)
	if !equality.Semantic.DeepEqual(*status, list.Status) {
		p.Status = status
	}

	return p
}

func newChild(list *appsv1beta1.ImageListPullJob, image, hash string) *appsv1beta1.ImagePullJob {
	yes := true
	return &appsv1beta1.ImagePullJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:    list.Namespace,
			GenerateName: list.Name + "-",
			Labels:       map[string]string{pub.ControllerRevisionHash: hash},
			OwnerReferences: []metav1.OwnerReference{
				{
					APIVersion:         appsv1beta1.GroupVersion.String(),
					Kind:               "ImageListPullJob",
					Name:               list.Name,
					UID:                list.UID,
					Controller:         &yes,
					BlockOwnerDeletion: &yes,
				},
			},
		},
		Spec: appsv1beta1.ImagePullJobSpec{
			Image:                image,
			ImagePullJobTemplate: childTemplate(&list.Spec.ImagePullJobTemplate),
		},
	}
}

func listStatus(
	list *appsv1beta1.ImageListPullJob, children map[string]*appsv1beta1.ImagePullJob, now time.Time,
) *appsv1beta1.ImageListPullJobStatus {
	status := &appsv1beta1.ImageListPullJobStatus{
		StartTime: list.Status.StartTime,
		Desired:   int32(len(list.Spec.Images)),
	}
	if status.StartTime == nil {
		start := metav1.NewTime(now)
		status.StartTime = &start
	}
	for _, image := range list.Spec.Images { // in this order, so that the status does not flap
		child := children[image]
		if child == nil || child.Status.StartTime == nil {
			continue
		}
		s := &child.Status
		if s.Active > 0 {
			status.Active++
		}
		// The job may be waiting for pods.
		waits := s.Desired == 0 && s.CompletionTime == nil &&
			list.Spec.CompletionPolicy.Type != appsv1beta1.CompletionNever
		if s.Desired == s.Failed+s.Succeeded && !waits {
			status.Completed++
		}
		if s.Desired == s.Succeeded && !waits {
			status.Succeeded++
		}
		if s.Failed > 0 {
			status.FailedImageStatuses = append(status.FailedImageStatuses, &appsv1beta1.FailedImageStatus{
				ImagePullJob: child.Name,
				Name:         image,
				Message: fmt.Sprintf("%d of %s failed, see ImagePullJob %s",
					s.Failed, wording.Count(s.Desired, "node"), child.Name),
			})
		}
	}
	if list.Spec.CompletionPolicy.Type != appsv1beta1.CompletionNever && status.Completed == status.Desired {
		end := metav1.NewTime(now)
		status.CompletionTime = &end
	}
	return status
}
