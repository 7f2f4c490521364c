package judge

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
)

// familiar returns the name of an image as specs have it. Runtimes write the registry before it.
func familiar(image string) string { return strings.TrimPrefix(image, "docker.io/library/") }

// pulls are the numbers of an ImagePullJob (IMG-084, IMG-092).
var pulls = rule{
	name:    "pulls",
	promise: "an ImagePullJob ends when each of its nodes has succeeded or failed",
	check: func(_ *state, c *change) (bool, string) {
		if c.Resource != "imagepulljobs" || c.before == nil || c.after == nil || c.before.pull.Status.CompletionTime != nil ||
			c.after.pull.Status.CompletionTime == nil {
			return false, ""
		}
		return true, miscounted(&c.after.pull.Status)
	},
}

func miscounted(st *v1beta1.ImagePullJobStatus) string {
	if st.Succeeded+st.Failed != st.Desired || st.Active != 0 || len(st.FailedNodes) != int(st.Failed) {
		return fmt.Sprintf("of %d nodes %d succeeded, %d failed, %d are active; failed are %q", st.Desired, st.Succeeded, st.Failed,
			st.Active, st.FailedNodes)
	}
	return ""
}

// pullEnds says what is wrong with an ImagePullJob at the end: it is over, and each node says what the job says (IMG-083).
func (s *state) pullEnds(o *object) string {
	st := &o.pull.Status
	if st.CompletionTime == nil {
		return fmt.Sprintf("it is not over: %s", st.Message)
	}
	if text := miscounted(st); text != "" {
		return text
	}
	well, all := 0, o.pull.Spec.Selector == nil && o.pull.Spec.PodSelector == nil
	var failed []string
	for k, list := range s.objects {
		if k.resource != "nodeimages" {
			continue
		}
		switch phase, owned := phaseOf(list.images, o.UID); {
		case phase == v1beta1.ImagePhaseSucceeded:
			well++
		case phase == v1beta1.ImagePhaseFailed:
			failed = append(failed, k.name)
		case owned || all:
			return fmt.Sprintf("on %s its image is %q", k.name, phase)
		}
	}
	slices.Sort(failed)
	if int(st.Succeeded) != well || !slices.Equal(st.FailedNodes, failed) {
		return fmt.Sprintf("it says that %d nodes succeeded and %q failed; nodes say %d and %q", st.Succeeded, st.FailedNodes, well, failed)
	}
	return ""
}

// phaseOf returns what has become of the tag that a job owns on a node, or nothing if the node has not answered, and whether the job owns
// one there.
func phaseOf(list *v1beta1.NodeImage, job types.UID) (v1beta1.ImagePullPhase, bool) {
	for image, spec := range list.Spec.Images {
		for _, tag := range spec.Tags {
			if !slices.ContainsFunc(tag.OwnerReferences, func(of corev1.ObjectReference) bool { return of.UID == job }) {
				continue
			}
			for _, status := range list.Status.ImageStatuses[image].Tags {
				if status.Tag == tag.Tag && status.Version == tag.Version {
					return status.Phase, true
				}
			}
			return "", true
		}
	}
	return "", false
}

// listEnds says what is wrong with the list of images of a node at the end (IMG-061, IMG-142).
func listEnds(list *v1beta1.NodeImage) string {
	tags := 0
	for _, image := range list.Spec.Images {
		tags += len(image.Tags)
	}
	if st := &list.Status; int(st.Desired) != tags || st.Succeeded+st.Failed != st.Desired || st.Pulling+st.Waiting != 0 {
		return fmt.Sprintf("of %d tags, %d by its status, %d succeeded, %d failed, %d are pulled, %d wait", tags, st.Desired, st.Succeeded,
			st.Failed, st.Pulling, st.Waiting)
	}
	return ""
}
