package imagepull

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/imageref"
)

// Assigner computes the changes of NodeImages for a job.
type Assigner struct {
	Job     *appsv1beta1.ImagePullJob
	Secrets []appsv1beta1.ReferenceObject
	// ExtraTTL is the flag --default-ttlseconds-for-always-nodeimage.
	ExtraTTL time.Duration
	// Busy reports whether an owner of a tag is a job for which Counts is true. If it is nil, every owner is.
	Busy   func(owner corev1.ObjectReference) bool
	Now    time.Time
	Random func() float64
}

// Assign returns the image of the NodeImage with the job added (IMG-086 to IMG-088). If the job is already
// there, only missing secrets are added.
func (a Assigner) Assign(node *appsv1beta1.NodeImage) (map[string]*appsv1beta1.ImageSpec, error) {
	name, tag, err := imageref.Parse(a.Job.Spec.Image)
	if err != nil {
		return nil, err
	}

	present := node.Spec.Images[name]
	grows := ownedTag(node, name, tag, a.Job.UID) == nil || lacksSecrets(present.PullSecrets, a.Secrets)
	if grows && noRoom(node, a.Job, name, tag, a.Secrets) != "" {
		return nil, ErrFull
	}

	image := *present.DeepCopy()
	for _, secret := range a.Secrets {
		if !slices.Contains(image.PullSecrets, secret) {
			image.PullSecrets = append(image.PullSecrets, secret)
		}
	}

	i := slices.IndexFunc(image.Tags, func(t appsv1beta1.ImageTagSpec) bool { return t.Tag == tag })
	if i < 0 || !owns(&image.Tags[i], a.Job.UID) {
		policy, from, pull := a.pullPolicy(), known(a.Job.Spec.ImagePullPolicy), true
		if i < 0 {
			version := int64(0)
			if status := TagStatus(node, name, tag); status != nil {
				version = following(status.Version)
			}
			image.Tags = append(image.Tags, appsv1beta1.ImageTagSpec{Tag: tag, Version: version})
			i = len(image.Tags) - 1
		} else {
			policy = longest(policy, image.Tags[i].PullPolicy)
			phase := phaseOf(node, name, &image.Tags[i])
			pull = from == appsv1beta1.PullAlways || phase != appsv1beta1.ImagePhaseSucceeded ||
				!a.counted(&image.Tags[i])
			if phase != appsv1beta1.ImagePhaseSucceeded && phase != appsv1beta1.ImagePhaseFailed &&
				image.Tags[i].ImagePullPolicy == appsv1beta1.PullAlways {
				from = appsv1beta1.PullAlways // the pull under way is for its owners, too
			}
			if pull {
				image.Tags[i].Version = following(image.Tags[i].Version)
			}
		}
		entry := &image.Tags[i]
		entry.PullPolicy = policy
		if pull {
			now := metav1.NewTime(a.Now)
			entry.CreatedAt, entry.ImagePullPolicy = &now, from
			if sandbox := sandboxOf(a.Job); sandbox != nil {
				image.SandboxConfig = sandbox
			}
		}
		entry.OwnerReferences = append(entry.OwnerReferences, corev1.ObjectReference{
			APIVersion: appsv1beta1.GroupVersion.String(),
			Kind:       JobKind,
			Namespace:  a.Job.Namespace,
			Name:       a.Job.Name,
			UID:        a.Job.UID,
		})
		slices.SortFunc(image.Tags,
			func(a, b appsv1beta1.ImageTagSpec) int { return strings.Compare(a.Tag, b.Tag) })
	}

	if equality.Semantic.DeepEqual(present, image) {
		return nil, nil
	}

	return map[string]*appsv1beta1.ImageSpec{name: &image}, nil
}

// phaseOf returns the phase of the pull of this version of a tag, or "" if the node has not answered.
func phaseOf(
	node *appsv1beta1.NodeImage, name string, tag *appsv1beta1.ImageTagSpec,
) appsv1beta1.ImagePullPhase {
	if status := TagStatus(node, name, tag.Tag); status != nil && status.Version == tag.Version {
		return status.Phase
	}
	return ""
}

// counted reports whether a job still counts the tag among what is done. Another version would undo that. If no
// job does, the image may have been deleted from the node since.
func (a Assigner) counted(tag *appsv1beta1.ImageTagSpec) bool {
	return len(tag.OwnerReferences) > 0 && (a.Busy == nil || slices.ContainsFunc(tag.OwnerReferences, a.Busy))
}

// Counts reports whether a job ends and has not ended yet: it still counts its finished tags.
func Counts(job *appsv1beta1.ImagePullJob) bool {
	return job.Spec.CompletionPolicy.Type != appsv1beta1.CompletionNever &&
		job.Status.CompletionTime == nil && job.DeletionTimestamp == nil
}

// following returns the next version. Nodes write versions themselves. One that has no valid successor is
// followed by 0, because a value that the NodeImage rejects would block the whole job.
func following(version int64) int64 {
	if version < 0 || version == math.MaxInt64 {
		return 0
	}
	return version + 1
}

// Drop returns the images of the NodeImage without the job, except for the tag that it asks for (IMG-095).
func (a Assigner) Drop(node *appsv1beta1.NodeImage) map[string]*appsv1beta1.ImageSpec {
	name, tag, err := imageref.Parse(a.Job.Spec.Image)
	if err != nil {
		return nil
	}

	changed := map[string]*appsv1beta1.ImageSpec{}
	for _, image := range slices.Sorted(maps.Keys(node.Spec.Images)) {
		spec := node.Spec.Images[image]
		next := *spec.DeepCopy()
		next.Tags = nil

		for _, t := range spec.Tags {
			if (image != name || t.Tag != tag) && owns(&t, a.Job.UID) {
				t.OwnerReferences = slices.DeleteFunc(slices.Clone(t.OwnerReferences),
					func(ref corev1.ObjectReference) bool { return ref.UID == a.Job.UID })
				if len(t.OwnerReferences) == 0 {
					continue
				}
			}
			next.Tags = append(next.Tags, t)
		}

		switch {
		case len(next.Tags) == 0 && len(spec.Tags) > 0:
			changed[image] = nil
		case !equality.Semantic.DeepEqual(next, spec):
			changed[image] = &next
		}
	}

	return changed
}

// pullPolicy returns the policy for pulls on a node.
func (a Assigner) pullPolicy() *appsv1beta1.ImageTagPullPolicy {
	timeout, backoff := int32(defaultTimeout), int32(defaultBackoff)
	if p := a.Job.Spec.PullPolicy; p != nil {
		if p.TimeoutSeconds != nil && *p.TimeoutSeconds >= 0 {
			timeout = *p.TimeoutSeconds
		}
		if p.BackoffLimit != nil && *p.BackoffLimit >= 0 {
			backoff = min(*p.BackoffLimit, maxBackoff)
		}
	}

	policy := &appsv1beta1.ImageTagPullPolicy{TimeoutSeconds: &timeout, BackoffLimit: &backoff}
	var ttl int64
	completion := a.Job.Spec.CompletionPolicy
	if completion.Type == appsv1beta1.CompletionNever {
		deadline := max(int64(neverDeadline), int64(timeout))
		policy.ActiveDeadlineSeconds = &deadline
		ttl = int64((neverTTL + time.Duration((2*a.Random()-1)*float64(neverSpread))) / time.Second)
	} else {
		if deadline := completion.ActiveDeadlineSeconds; deadline != nil {
			policy.ActiveDeadlineSeconds = new(max(*deadline, 0))
		}
		switch {
		case completion.TTLSecondsAfterFinished != nil:
			ttl = int64(*completion.TTLSecondsAfterFinished)
		case completion.ActiveDeadlineSeconds != nil:
			ttl = min(*completion.ActiveDeadlineSeconds, math.MaxInt32)
		default:
			ttl = int64(timeout) * int64(backoff)
		}
		ttl += int64(a.ExtraTTL/time.Second) + int64(a.Random()*300)
	}

	policy.TTLSecondsAfterFinished = new(int32(max(min(ttl, maxTTL), 0)))
	return policy
}

// known returns the policy, or Always if it is unknown: jobs of older releases may have any value.
func known(policy appsv1beta1.ImagePullPolicy) appsv1beta1.ImagePullPolicy {
	if checkPullPolicy(policy) != nil {
		return appsv1beta1.PullAlways
	}
	return policy
}

// longest returns a policy with the longest times and the most attempts of two, because the jobs of several
// tenants share a pull (IMG-088).
func longest(policy, before *appsv1beta1.ImageTagPullPolicy) *appsv1beta1.ImageTagPullPolicy {
	if before == nil {
		return policy
	}

	backoff := ptr.Deref(before.BackoffLimit, defaultBackoff)
	if backoff < 0 {
		backoff = defaultBackoff
	}
	merged := &appsv1beta1.ImageTagPullPolicy{
		TimeoutSeconds: new(max(*policy.TimeoutSeconds, ptr.Deref(before.TimeoutSeconds, defaultTimeout))),
		BackoffLimit:   new(max(*policy.BackoffLimit, backoff)),
		TTLSecondsAfterFinished: new(max(*policy.TTLSecondsAfterFinished,
			ptr.Deref(before.TTLSecondsAfterFinished, 0))),
	}
	if policy.ActiveDeadlineSeconds != nil && before.ActiveDeadlineSeconds != nil {
		merged.ActiveDeadlineSeconds = new(max(*policy.ActiveDeadlineSeconds, *before.ActiveDeadlineSeconds))
	}
	return merged
}
