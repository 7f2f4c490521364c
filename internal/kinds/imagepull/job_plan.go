package imagepull

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/imageref"
	"github.com/afloat-project/afloat/internal/engine/timing"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

const (
	silentAfter   = time.Minute // a node that does not answer for this long frees its slot
	podsWithin    = time.Minute // how long the pods of a workload have to be scheduled
	neverDeadline = 1800        // seconds
	neverTTL      = 24 * time.Hour
	neverSpread   = 10 * time.Minute
	maxFailed     = 500 // maximum number of names in status.failedNodes
)

// ErrFull means that a NodeImage has no room for another image (IMG-097).
var ErrFull = errors.New("the NodeImage has as many images as it can hold")

// JobSnapshot is the input of the plan of an ImagePullJob.
type JobSnapshot struct {
	Job *appsv1beta1.ImagePullJob
	// Nodes are the selected NodeImages, in the order in which they should pull (IMG-071 to IMG-073). Owned
	// are the NodeImages with tags that this job owns, selected or not.
	Nodes, Owned []*appsv1beta1.NodeImage
	// Secrets are the references to the pull secrets for NodeImages (IMG-118).
	Secrets []appsv1beta1.ReferenceObject
	// NotReadySince returns since when a node is not ready; ok is false if it is ready or unknown. It may be
	// nil.
	NotReadySince func(node string) (since time.Time, ok bool)
	// Refused are the nodes whose NodeImages rejected the job at the last write, and since when. They come
	// after the others, so that they do not delay these.
	Refused map[string]time.Time
	// Rooms caches the sizes of NodeImages; it may be nil.
	Rooms *Rooms
	Now   time.Time
}

// JobPlan defines what to do for an ImagePullJob.
type JobPlan struct {
	// Finish releases the secrets and removes the finalizer (IMG-080).
	Finish, AddFinalizer, Delete bool
	// Assign are the nodes that get the job now. Supply are those that have it but lack secrets (IMG-089).
	// Drop are those with tags that the job no longer asks for (IMG-095).
	Assign, Supply, Drop []string
	// Status is the status to write, or nil if it does not change.
	Status *appsv1beta1.ImagePullJobStatus
	After  time.Duration
	Why    string

	room string // why nodes have no room
}

// Idle reports whether there is nothing to write.
func (p *JobPlan) Idle() bool {
	return !p.Finish && !p.AddFinalizer && !p.Delete && len(p.Assign)+len(p.Supply)+len(p.Drop) == 0 &&
		p.Status == nil
}

// PlanJob makes the plan of an ImagePullJob (IMG-080 to IMG-099).
func PlanJob(s JobSnapshot) *JobPlan {
	p := &JobPlan{}
	job := s.Job
	held := slices.Contains(job.Finalizers, pub.PullJobProtection)
	if job.DeletionTimestamp != nil || job.Status.CompletionTime != nil {
		p.Finish, p.Why = held, "finished"
		if ttl := job.Spec.CompletionPolicy.TTLSecondsAfterFinished; job.DeletionTimestamp == nil &&
			ttl != nil {
			if left := job.Status.CompletionTime.Add(time.Duration(*ttl) * time.Second).Sub(s.Now); left > 0 {
				p.After = left
			} else {
				p.Delete = true
			}
		}
		return p
	}

	name, tag, err := imageref.Parse(job.Spec.Image)
	if err != nil {
		p.Why = err.Error() // admission rejects it
		return p
	}

	p.AddFinalizer = !held
	status := &appsv1beta1.ImagePullJobStatus{StartTime: job.Status.StartTime, Desired: int32(len(s.Nodes))}
	if status.StartTime == nil {
		now := metav1.NewTime(s.Now)
		status.StartTime = &now
	}

	due := clock{now: s.Now}
	var failed, full, waiting, refused, given []string
	occupied := 0
	room := func(node *appsv1beta1.NodeImage) string {
		return s.Rooms.sums(node, job.Namespace).noRoom(node, job, name, tag, s.Secrets)
	}

	for _, node := range s.Nodes {
		entry := ownedTag(node, name, tag, job.UID)
		if entry == nil {
			if why := room(node); why != "" {
				full, p.room = append(full, node.Name), why
				continue
			}
			switch since, ok := s.Refused[node.Name]; {
			case !ok:
				waiting = append(waiting, node.Name)
			case job.Spec.CompletionPolicy.Type != appsv1beta1.CompletionNever &&
				due.over(since.Add(nodeAnswersWithin)):
				// A job that ends does not wait for a NodeImage that may never accept it.
				given = append(given, node.Name)
			default:
				refused = append(refused, node.Name)
			}
			continue
		}

		if lacksSecrets(node.Spec.Images[name].PullSecrets, s.Secrets) && room(node) == "" {
			p.Supply = append(p.Supply, node.Name)
		}

		result := TagStatus(node, name, tag)
		switch {
		case result != nil && result.Version == entry.Version &&
			result.Phase == appsv1beta1.ImagePhaseSucceeded:
			status.Succeeded++
		case result != nil && result.Version == entry.Version && result.Phase == appsv1beta1.ImagePhaseFailed:
			failed = append(failed, node.Name)
		default:
			status.Active++
			if !s.silent(node.Name, entry, result, &due) {
				occupied++
			}
		}
	}

	waiting = append(waiting, refused...)
	p.Drop = stale(s.Owned, name, tag, job.UID)
	limit, err := parallelism(job.Spec.Parallelism)
	if err != nil {
		limit = 1 // admission rejects it
	}

	p.Assign = waiting[:min(max(limit-occupied, 0), len(waiting))]
	if occupied > 0 && len(waiting) > len(p.Assign) {
		due.over(s.Now.Add(silentAfter)) // there is no event when a node dies
	}

	p.conclude(s, status, &due, failed, full, given, waiting)
	if !equality.Semantic.DeepEqual(*status, job.Status) {
		p.Status = status
	}

	p.After, p.Why = due.next, status.Message
	return p
}

// silent reports whether a node frees its slot because it has not answered, or was not ready, for a minute.
func (s *JobSnapshot) silent(
	node string, entry *appsv1beta1.ImageTagSpec, result *appsv1beta1.ImageTagStatus, due *clock,
) bool {
	if (result == nil || result.Version != entry.Version) && entry.CreatedAt != nil &&
		due.over(entry.CreatedAt.Add(silentAfter)) {
		return true
	}
	if s.NotReadySince == nil {
		return false
	}
	since, ok := s.NotReadySince(node)
	// A time in the future comes from a node whose clock is ahead.
	return ok && (since.After(s.Now.Add(ahead)) || due.over(since.Add(silentAfter)))
}

// conclude sets the counters and the message of the status, and completes the job if it is done or overdue.
func (p *JobPlan) conclude(
	s JobSnapshot, status *appsv1beta1.ImagePullJobStatus, due *clock, failed, full, given, waiting []string,
) {
	job := s.Job
	always := job.Spec.CompletionPolicy.Type != appsv1beta1.CompletionNever
	notes := ""
	if len(full) > 0 {
		notes += fmt.Sprintf("; %s no room for another image (%s), such as %s",
			wording.Count(len(full), "node")+wording.Form(len(full), " has", " have"), p.room, full[0])
	}

	if len(given) > 0 {
		notes += fmt.Sprintf("; %s refused the image for %s, such as %s",
			wording.Count(len(given), "NodeImage")+wording.Form(len(given), " has", " have"), nodeAnswersWithin,
			given[0])
	}

	failed = slices.Concat(failed, full, given)
	completed := false
	if deadline := job.Spec.CompletionPolicy.ActiveDeadlineSeconds; always && deadline != nil {
		at := status.StartTime.Add(timing.Seconds(*deadline))
		if int(status.Succeeded)+len(failed) < int(status.Desired) && due.over(at) {
			failed = failed[:0]
			name, tag, _ := imageref.Parse(job.Spec.Image)
			for _, node := range s.Nodes {
				if !succeeded(node, name, tag, job.UID) {
					failed = append(failed, node.Name)
				}
			}
			status.Active, completed = 0, true
			status.Message = fmt.Sprintf("job exceeds activeDeadlineSeconds %d", *deadline)
		}
	}

	slices.Sort(failed)
	status.Failed = int32(len(failed))
	if status.FailedNodes = failed; len(failed) > maxFailed {
		status.FailedNodes = failed[:maxFailed:maxFailed]
		notes += fmt.Sprintf("; %d nodes failed, the first %d are listed", len(failed), maxFailed)
	}

	done := status.Succeeded + status.Failed
	switch {
	case completed:
	case always && done == status.Desired && (status.Desired > 0 || !s.expectsPods(due)):
		completed = true
		status.Message = "job has completed"
		if status.Desired == 0 {
			status.Message += ": nothing was pulled, because " + noNode(job)
		}
	case status.Desired == 0:
		status.Message = "job is running, no progress: " + noNode(job)
	default:
		status.Message = fmt.Sprintf("job is running, progress %.1f%%",
			100*float64(done)/float64(status.Desired))
	}

	status.Message += notes
	if completed {
		now := metav1.NewTime(s.Now)
		status.CompletionTime = &now
		p.Assign, p.Supply, due.next = nil, nil, 0
	} else if len(waiting) > len(p.Assign) && len(p.Assign) == 0 && job.Spec.Parallelism != nil &&
		job.Spec.Parallelism.String() == "0" {
		status.Message += "; paused, parallelism is 0"
	}
}

// noNode returns why a job has no nodes.
func noNode(job *appsv1beta1.ImagePullJob) string {
	switch {
	case job.Spec.PodSelector != nil:
		return "no pod that spec.podSelector matches is on a node"
	case job.Spec.Selector != nil:
		return "spec.selector matches no node"
	}
	return "there are no nodes"
}

// expectsPods reports whether the pods of the workload that created the job may still be scheduled.
func (s *JobSnapshot) expectsPods(due *clock) bool {
	job := s.Job
	if job.Spec.PodSelector == nil || metav1.GetControllerOf(job) == nil {
		return false
	}

	wait := podsWithin
	if deadline := job.Spec.CompletionPolicy.ActiveDeadlineSeconds; deadline != nil {
		wait = timing.Seconds(*deadline)
	}

	start := s.Now
	if job.Status.StartTime != nil {
		start = job.Status.StartTime.Time
	}
	return !due.over(start.Add(wait))
}

func succeeded(node *appsv1beta1.NodeImage, name, tag string, job types.UID) bool {
	entry, result := ownedTag(node, name, tag, job), TagStatus(node, name, tag)
	return entry != nil && result != nil && result.Version == entry.Version &&
		result.Phase == appsv1beta1.ImagePhaseSucceeded
}

// ownedTag returns the tag if the job owns it, or nil.
func ownedTag(node *appsv1beta1.NodeImage, name, tag string, job types.UID) *appsv1beta1.ImageTagSpec {
	tags := node.Spec.Images[name].Tags
	for i := range tags {
		if tags[i].Tag == tag && owns(&tags[i], job) {
			return &tags[i]
		}
	}
	return nil
}

func owns(tag *appsv1beta1.ImageTagSpec, job types.UID) bool {
	return slices.ContainsFunc(tag.OwnerReferences,
		func(ref corev1.ObjectReference) bool { return ref.UID == job })
}

func lacksSecrets(present, wanted []appsv1beta1.ReferenceObject) bool {
	return slices.ContainsFunc(wanted,
		func(ref appsv1beta1.ReferenceObject) bool { return !slices.Contains(present, ref) })
}

// stale returns the NodeImages in which the job owns a tag other than the one it asks for.
func stale(owned []*appsv1beta1.NodeImage, name, tag string, job types.UID) []string {
	var names []string
	for _, node := range owned {
		for image, spec := range node.Spec.Images {
			if slices.ContainsFunc(spec.Tags, func(t appsv1beta1.ImageTagSpec) bool {
				return (image != name || t.Tag != tag) && owns(&t, job)
			}) {
				names = append(names, node.Name)
				break
			}
		}
	}

	slices.Sort(names)
	return names
}
