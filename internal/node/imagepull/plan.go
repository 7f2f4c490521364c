package imagepull

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/wording"
	pulljobs "github.com/afloat-project/afloat/internal/kinds/imagepull"
)

const (
	waiting   = appsv1beta1.ImagePhaseWaiting
	pulling   = appsv1beta1.ImagePhasePulling
	succeeded = appsv1beta1.ImagePhaseSucceeded
	failed    = appsv1beta1.ImagePhaseFailed
)

// key identifies a tag of an image.
type key struct{ image, tag string }

// reference returns the familiar form for users, name:tag or name@digest.
func (k key) reference() string {
	if digest(k.tag) {
		return k.image + "@" + k.tag
	}
	return k.image + ":" + k.tag
}

// pulled returns the reference for the runtime, which is the full form with the registry. With a shorter form
// the runtime would choose the registry itself, CRI-O by the node's list of registries, and could send
// credentials to a registry that they are not meant for.
func (k key) pulled() (string, error) {
	name := full(k.reference())
	if name == "" {
		return "", fmt.Errorf("%s is no name of an image", k.reference())
	}
	return name, nil
}

// digest reports whether a tag is a digest. Only digests contain a colon.
func digest(tag string) bool { return strings.Contains(tag, ":") }

// snapshot is the input of a plan.
type snapshot struct {
	object *appsv1beta1.NodeImage
	// tasks holds the statuses of the existing tasks.
	tasks map[key]appsv1beta1.ImageTagStatus
	// first holds the tags that firstSyncStatus is about, with their versions. It is nil if firstSyncStatus
	// is recorded already.
	first map[key]int64
	now   time.Time
}

// plan describes what a pass does.
type plan struct {
	// start and stop list tasks, sorted by image and tag.
	start, stop []key
	// drop lists the tasks whose results are recorded.
	drop   []key
	status appsv1beta1.NodeImageStatus
	// unfinished means that another pass is due soon.
	unfinished bool
}

func finished(s appsv1beta1.ImageTagStatus) bool { return s.Phase == succeeded || s.Phase == failed }

// recorded returns the recorded status of the tag. It is the zero value if none is recorded for this version.
func recorded(object *appsv1beta1.NodeImage, k key, version int64) appsv1beta1.ImageTagStatus {
	for _, s := range object.Status.ImageStatuses[k.image].Tags {
		if s.Tag == k.tag && s.Version == version {
			return s
		}
	}
	return appsv1beta1.ImageTagStatus{}
}

// newPlan compares the spec, the recorded status and the tasks.
func newPlan(s snapshot) plan {
	p := plan{status: appsv1beta1.NodeImageStatus{FirstSyncStatus: s.object.Status.FirstSyncStatus}}
	wanted := map[key]bool{}
	for _, image := range slices.Sorted(maps.Keys(s.object.Spec.Images)) {
		var tags []appsv1beta1.ImageTagStatus
		for _, tag := range s.object.Spec.Images[image].Tags {
			k := key{image, tag.Tag}
			if wanted[k] {
				continue
			}
			wanted[k] = true
			tags = append(tags, s.tag(k, tag.Version, &p))
		}
		slices.SortFunc(tags, func(a, b appsv1beta1.ImageTagStatus) int { return cmp.Compare(a.Tag, b.Tag) })
		if len(tags) > 0 {
			if p.status.ImageStatuses == nil {
				p.status.ImageStatuses = map[string]appsv1beta1.ImageStatus{}
			}
			p.status.ImageStatuses[image] = appsv1beta1.ImageStatus{Tags: tags}
		}
		p.count(tags)
	}

	for k := range s.tasks {
		if !wanted[k] {
			p.stop = append(p.stop, k)
		}
	}

	slices.SortFunc(p.stop, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.image, b.image), cmp.Compare(a.tag, b.tag))
	})
	s.firstSync(&p)
	// The API server would store none of the results if all of them together were too long.
	most := pulljobs.MessageBytes(int(p.status.Desired))
	for _, image := range p.status.ImageStatuses {
		for i := range image.Tags {
			image.Tags[i].Message = wording.Clip(image.Tags[i].Message, most)
		}
	}
	return p
}

// tag decides what to do about one tag and returns its status.
func (s *snapshot) tag(k key, version int64, p *plan) appsv1beta1.ImageTagStatus {
	task, runs := s.tasks[k]
	known := recorded(s.object, k, version)
	switch {
	case finished(known): // by this daemon, or by the manager after a timeout
		if runs && task.Version == version && finished(task) {
			p.drop = append(p.drop, k)
		} else if runs {
			p.stop = append(p.stop, k)
		}
		return known
	case runs && task.Version == version:
		p.unfinished = p.unfinished || !finished(task)
		return task
	case runs:
		p.stop = append(p.stop, k)
	}

	p.start = append(p.start, k)
	p.unfinished = true
	return appsv1beta1.ImageTagStatus{Tag: k.tag, Version: version, Phase: waiting}
}

func (p *plan) count(tags []appsv1beta1.ImageTagStatus) {
	for _, tag := range tags {
		p.status.Desired++
		switch tag.Phase {
		case succeeded:
			p.status.Succeeded++
		case failed:
			p.status.Failed++
		case pulling:
			p.status.Pulling++
		default:
			p.status.Waiting++
		}
	}
}

// firstSync sets, only once, the result of the tags that the spec had when the node started. Tags that left
// the spec or changed their version are not counted.
func (s *snapshot) firstSync(p *plan) {
	if s.first == nil || p.status.FirstSyncStatus != nil {
		return
	}

	var failures []string
	count := 0
	for _, image := range slices.Sorted(maps.Keys(p.status.ImageStatuses)) {
		for _, tag := range p.status.ImageStatuses[image].Tags {
			k := key{image, tag.Tag}
			if version, ok := s.first[k]; !ok || version != tag.Version {
				continue
			}
			if !finished(tag) {
				return
			}
			count++
			if tag.Phase == failed {
				failures = append(failures, k.reference())
			}
		}
	}

	result := &appsv1beta1.SyncStatus{
		SyncAt:  metav1.NewTime(s.now),
		Status:  appsv1beta1.SyncStatusSucceeded,
		Message: wording.Count(count, "image") + wording.Form(count, " is present", " are present"),
	}
	if len(failures) > 0 {
		result.Status = appsv1beta1.SyncStatusFailed
		result.Message = wording.Bound(fmt.Sprintf("%d of %s failed: %s", len(failures), wording.Count(count, "image"),
			strings.Join(failures, ", ")))
	}
	p.status.FirstSyncStatus = result
}

// firstTags returns the tags of the spec for firstSync.
func firstTags(object *appsv1beta1.NodeImage) map[key]int64 {
	tags := map[key]int64{}
	for image, spec := range object.Spec.Images {
		for _, tag := range spec.Tags {
			tags[key{image, tag.Tag}] = tag.Version
		}
	}
	return tags
}
