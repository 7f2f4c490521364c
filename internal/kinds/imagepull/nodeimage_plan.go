package imagepull

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/timing"
)

const nodeAnswersWithin = 10 * time.Minute

// JobKind is the kind in references to jobs.
const JobKind = "ImagePullJob"

// Why the manager gave up a tag (IMG-058, IMG-059).
const (
	MessageNoNode   = "node has not responded for a long time"
	MessageDeadline = "pulling exceeds the activeDeadlineSeconds"
)

// NodeSnapshot is the input of the plan of a NodeImage.
type NodeSnapshot struct {
	Name string
	// NodeImage and Node are nil if they do not exist.
	NodeImage *appsv1beta1.NodeImage
	Node      *corev1.Node
	// JobUID returns the UID of a job, or "" if it does not exist; known is false if that could not be
	// determined. wanted is the expected UID.
	JobUID func(namespace, name string, wanted types.UID) (uid types.UID, known bool)
	// Busy reports whether a job that ends has not ended yet. Such a job still counts its finished tags, so
	// they stay (IMG-054). Otherwise a job whose nodes together take longer than the TTL would start again
	// with the first of them forever.
	Busy func(namespace, name string) bool
	// SecretUsers returns the jobs that use a copy of a secret; exists is false if there is no such secret,
	// and known reports whether this is certain. owners are the jobs that own tags of the image.
	SecretUsers func(namespace, name string, owners map[string]bool) (users []string, exists, known bool)
	// Progress is when the manager, by its own clock, last saw a change in what the node reports of its
	// pulls. It is zero if the manager has not looked.
	Progress time.Time
	Delay    time.Duration // --nodeimage-creation-delay
	Now      time.Time
	Random   func() float64 // in [0, 1)
}

// NodePlan defines what to do for a NodeImage.
type NodePlan struct {
	Create, Delete bool
	// Labels are the new labels of the NodeImage, if Relabel is set (IMG-053).
	Relabel bool
	Labels  map[string]string
	// Images holds the images that change; those to remove are nil (IMG-054 to IMG-057).
	Images map[string]*appsv1beta1.ImageSpec
	// Status is the status to write, or nil if it does not change.
	Status *appsv1beta1.NodeImageStatus
	// GaveUp are the tags that the manager marks as Failed (IMG-060).
	GaveUp []GivenUp
	After  time.Duration
	Why    string
}

// GivenUp is a tag that the manager marks as Failed.
type GivenUp struct {
	Image, Tag, Message string
	Owners              []corev1.ObjectReference
}

// Idle reports whether there is nothing to write.
func (p *NodePlan) Idle() bool {
	return !p.Create && !p.Delete && !p.Relabel && len(p.Images) == 0 && p.Status == nil
}

// PlanNode makes the plan of a node's NodeImage (IMG-050 to IMG-062).
func PlanNode(s NodeSnapshot) *NodePlan {
	p := &NodePlan{}
	node, image := s.Node, s.NodeImage
	if image == nil {
		p.create(s)
		return p
	}

	if image.DeletionTimestamp != nil {
		p.Why = "being deleted"
		return p
	}

	_, fake := image.Labels[pub.FakeNodeImage]
	switch gone := node == nil || node.DeletionTimestamp != nil; {
	case gone && !fake:
		p.Delete, p.Why = true, "the node is gone"
		return p
	case gone:
	case !fake && image.CreationTimestamp.Before(&node.CreationTimestamp):
		// Nobody saw that the node was deleted. Its results are of another disk.
		p.Delete, p.Why = true, "the node is another one of the same name"
		return p
	case !maps.Equal(image.Labels, node.Labels):
		p.Relabel, p.Labels = true, node.Labels
	}

	due := clock{now: s.Now}
	remaining := p.clean(s, &due)
	p.giveUp(s, remaining, &due)
	if due.next > 0 {
		p.After = due.next
		if p.After < 3*time.Second {
			p.After = 3*time.Second + time.Duration(s.Random()*float64(2*time.Second))
		}
	}

	p.Why = fmt.Sprintf("%d images wanted", len(remaining))
	return p
}

// create creates the NodeImage of a node that has been ready for a while.
func (p *NodePlan) create(s NodeSnapshot) {
	if s.Node == nil || s.Node.DeletionTimestamp != nil || s.Node.Labels[pub.NodeType] == pub.VirtualNode {
		p.Why = "there is no such node"
		return
	}

	ready := nodes.Ready(s.Node)
	if ready == nil || ready.Status != corev1.ConditionTrue {
		p.Why = "waiting for the node to be ready"
	} else if left := s.readySince(ready).Add(s.Delay).Sub(s.Now); left > 0 {
		p.After, p.Why = left, "waiting until the node has been ready for a while"
	} else {
		p.Create, p.Labels, p.Why = true, s.Node.Labels, "the node is ready"
	}
}

// readySince returns since when the node has been ready. The time comes from the node's clock: if that clock
// is ahead, the creation time of the node is used.
func (s *NodeSnapshot) readySince(ready *corev1.NodeCondition) time.Time {
	if since := ready.LastTransitionTime.Time; !since.After(s.Now) {
		return since
	}
	return s.Node.CreationTimestamp.Time
}

// clock finds the next time to plan again.
type clock struct {
	now  time.Time
	next time.Duration
}

// over reports whether the time has come; otherwise it records the time.
func (c *clock) over(at time.Time) bool {
	left := at.Sub(c.now)
	if left <= 0 {
		return true
	}
	if c.next == 0 || left < c.next {
		c.next = left
	}
	return false
}

// clean drops what no job asks for any more, and returns what remains.
func (p *NodePlan) clean(s NodeSnapshot, due *clock) map[string]appsv1beta1.ImageSpec {
	remaining := map[string]appsv1beta1.ImageSpec{}
	p.Images = map[string]*appsv1beta1.ImageSpec{}
	for name, image := range s.NodeImage.Spec.Images {
		cleaned := appsv1beta1.ImageSpec{SandboxConfig: image.SandboxConfig}
		users := map[string]bool{}
		for i := range image.Tags {
			tag := image.Tags[i]
			if tag.CreatedAt == nil {
				continue
			}

			owners := s.owners(tag.OwnerReferences)
			if len(owners) == 0 && len(tag.OwnerReferences) > 0 {
				continue
			}
			if s.expired(name, &tag, due) {
				continue
			}

			tag.OwnerReferences = owners
			for _, owner := range owners {
				users[owner.Namespace+"/"+owner.Name] = true
			}

			cleaned.Tags = append(cleaned.Tags, tag)
		}

		if len(cleaned.Tags) == 0 {
			p.Images[name] = nil
			continue
		}

		for _, secret := range image.PullSecrets {
			using, exists, known := s.SecretUsers(secret.Namespace, secret.Name, users)
			stale := known && !exists || known && secret.Mode == pub.SecretModeBatch &&
				!slices.ContainsFunc(using, func(job string) bool { return users[job] })
			if !stale {
				cleaned.PullSecrets = append(cleaned.PullSecrets, secret)
			}
		}

		if !equality.Semantic.DeepEqual(image, cleaned) {
			p.Images[name] = &cleaned
		}

		remaining[name] = cleaned
	}

	return remaining
}

// owners returns the references that stay.
func (s *NodeSnapshot) owners(all []corev1.ObjectReference) []corev1.ObjectReference {
	var kept []corev1.ObjectReference
	for _, ref := range all {
		if IsJob(ref) {
			if uid, known := s.JobUID(ref.Namespace, ref.Name, ref.UID); known && uid != ref.UID {
				continue
			}
		}
		kept = append(kept, ref)
	}
	return kept
}

// IsJob reports whether the owner of a tag is an ImagePullJob.
func IsJob(ref corev1.ObjectReference) bool {
	return ref.Kind == JobKind && strings.HasPrefix(ref.APIVersion, appsv1beta1.GroupVersion.Group+"/")
}

// ahead is by how much the clock of a node may be ahead without being recognized as wrong.
const ahead = time.Minute

// ended returns when a tag was finished, which the node reports by its own clock. The result is not before
// the tag was requested: if the clock is behind, a job would have its image pulled again and again. It is not
// in the future either: if the clock is ahead, the tag counts as finished after its request plus the duration
// of the pull, which is a difference between two times of the same clock.
func (s *NodeSnapshot) ended(tag *appsv1beta1.ImageTagSpec, status *appsv1beta1.ImageTagStatus) time.Time {
	end := status.CompletionTime.Time
	if end.After(s.Now.Add(ahead)) {
		end = tag.CreatedAt.Time
		if status.StartTime != nil {
			end = end.Add(max(status.CompletionTime.Sub(status.StartTime.Time), 0))
		}
		if end.After(s.Now) {
			end = s.Now
		}
	}

	if tag.CreatedAt.After(end) {
		return tag.CreatedAt.Time
	}

	return end
}

// expired reports whether a finished tag has been kept long enough.
func (s *NodeSnapshot) expired(name string, tag *appsv1beta1.ImageTagSpec, due *clock) bool {
	status := TagStatus(s.NodeImage, name, tag.Tag)
	if tag.PullPolicy == nil || tag.PullPolicy.TTLSecondsAfterFinished == nil || status == nil ||
		status.Version != tag.Version || status.CompletionTime == nil {
		return false
	}

	if !due.over(s.ended(tag, status).
		Add(time.Duration(*tag.PullPolicy.TTLSecondsAfterFinished) * time.Second)) {
		return false
	}

	for _, ref := range tag.OwnerReferences {
		if IsJob(ref) && s.Busy(ref.Namespace, ref.Name) {
			due.over(s.Now.Add(time.Minute))
			return false
		}
	}

	return true
}

// overdue reports whether a node has exceeded the deadline of a tag without reporting it. The deadline starts
// with the pull, of which the manager only knows when it last saw progress on the node. A tag that is waiting
// may wait for other pulls: at most as long as the longest of them can take.
func (s *NodeSnapshot) overdue(
	tag *appsv1beta1.ImageTagSpec, status *appsv1beta1.ImageTagStatus, longest time.Duration, due *clock,
) bool {
	if tag.PullPolicy == nil || tag.PullPolicy.ActiveDeadlineSeconds == nil {
		return false
	}

	since, wait := tag.CreatedAt.Time, timing.Seconds(*tag.PullPolicy.ActiveDeadlineSeconds)
	if status != nil && status.Version == tag.Version {
		if status.Phase == appsv1beta1.ImagePhaseWaiting {
			if s.Progress.IsZero() {
				return false
			}
			wait = max(wait, longest)
		}
		if s.Progress.After(since) {
			since = s.Progress
		}
	}

	return due.over(since.Add(wait + nodeAnswersWithin))
}

// longestPull returns the maximum time that the running pulls of the node may take.
func (s *NodeSnapshot) longestPull(images map[string]appsv1beta1.ImageSpec) (longest time.Duration) {
	for name, image := range images {
		for i := range image.Tags {
			tag := &image.Tags[i]
			if status := TagStatus(s.NodeImage, name, tag.Tag); status == nil ||
				status.Version != tag.Version || status.Phase != appsv1beta1.ImagePhasePulling {
				continue
			}

			timeout, tries := int64(defaultTimeout), int64(defaultBackoff)+1
			if p := tag.PullPolicy; p != nil {
				if p.ActiveDeadlineSeconds != nil {
					longest = max(longest, timing.Seconds(*p.ActiveDeadlineSeconds))
					continue
				}
				if p.TimeoutSeconds != nil {
					timeout = int64(*p.TimeoutSeconds)
				}
				if p.BackoffLimit != nil {
					tries = int64(min(*p.BackoffLimit, maxBackoff)) + 1
				}
			}

			const pause = 30 // seconds, the longest pause between two attempts
			longest = max(longest, timing.Seconds(tries*(timeout+pause)))
		}
	}

	return longest
}

// giveUp marks tags as Failed that no node works on.
func (p *NodePlan) giveUp(s NodeSnapshot, images map[string]appsv1beta1.ImageSpec, due *clock) {
	failed := map[[2]string]appsv1beta1.ImageTagStatus{}
	longest := s.longestPull(images)
	for _, name := range slices.Sorted(maps.Keys(images)) {
		for _, tag := range images[name].Tags {
			status := TagStatus(s.NodeImage, name, tag.Tag)
			message := ""
			if status == nil || status.Version != tag.Version {
				if due.over(tag.CreatedAt.Add(nodeAnswersWithin)) {
					message = MessageNoNode
				}
			} else if status.CompletionTime != nil {
				continue
			}

			if message == "" && s.overdue(&tag, status, longest, due) {
				message = MessageDeadline
			}
			if message == "" {
				continue
			}

			next := appsv1beta1.ImageTagStatus{Tag: tag.Tag}
			if status != nil && status.Version == tag.Version {
				next = *status
			}

			now := metav1.NewTime(s.Now)
			next.Version, next.Phase, next.CompletionTime, next.Message =
				tag.Version, appsv1beta1.ImagePhaseFailed, &now, message
			failed[[2]string{name, tag.Tag}] = next
			p.GaveUp = append(p.GaveUp,
				GivenUp{Image: name, Tag: tag.Tag, Message: message, Owners: tag.OwnerReferences})
		}
	}

	if len(failed) == 0 {
		return
	}

	status := s.NodeImage.Status.DeepCopy()
	status.ImageStatuses = map[string]appsv1beta1.ImageStatus{}
	status.Desired, status.Waiting, status.Pulling, status.Succeeded, status.Failed = 0, 0, 0, 0, 0

	for name, image := range images {
		var tags []appsv1beta1.ImageTagStatus
		for _, tag := range image.Tags {
			status.Desired++
			entry, ok := failed[[2]string{name, tag.Tag}]
			if !ok {
				if present := TagStatus(s.NodeImage, name, tag.Tag); present != nil {
					entry, ok = *present, true
				}
			}

			if !ok {
				continue
			}

			tags = append(tags, entry)
			switch entry.Phase {
			case appsv1beta1.ImagePhaseWaiting:
				status.Waiting++
			case appsv1beta1.ImagePhasePulling:
				status.Pulling++
			case appsv1beta1.ImagePhaseSucceeded:
				status.Succeeded++
			case appsv1beta1.ImagePhaseFailed:
				status.Failed++
			}
		}

		if len(tags) > 0 {
			slices.SortFunc(tags,
				func(a, b appsv1beta1.ImageTagStatus) int { return strings.Compare(a.Tag, b.Tag) })
			status.ImageStatuses[name] = appsv1beta1.ImageStatus{Tags: tags}
		}
	}

	p.Status = status
}

// TagStatus returns the status of a tag, or nil if there is none.
func TagStatus(node *appsv1beta1.NodeImage, image, tag string) *appsv1beta1.ImageTagStatus {
	tags := node.Status.ImageStatuses[image].Tags
	for i := range tags {
		if tags[i].Tag == tag {
			return &tags[i]
		}
	}
	return nil
}
