package podapply

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/podplan"
)

const (
	// foreignEvery is the minimum interval between the events of a set: a webhook may rewrite the images of
	// all pods.
	foreignEvery = 10 * time.Minute
	// foreignPods is how many pods an event names.
	foreignPods = 3
	// foreignLength is how many bytes of an image name an event contains.
	foreignLength = 100
)

// foreignMemory records which foreign images of a workload were reported, and when last.
type foreignMemory struct {
	told map[podplan.ForeignImage]bool
	last time.Time
}

// tellForeign reports each image that somebody else wrote into a pod once, for as long as it stays there. It
// returns the time after which a pass is due to report more; 0 if there is nothing to report.
func (m *Memory) tellForeign(a *Application, now time.Time) time.Duration {
	memory := &m.foreign
	if len(a.plan.ForeignImages) == 0 && memory.told == nil {
		return 0
	}

	told, fresh := make(map[podplan.ForeignImage]bool, len(a.plan.ForeignImages)), []podplan.ForeignImage(nil)
	for _, image := range a.plan.ForeignImages {
		if memory.told[image] {
			told[image] = true
		} else {
			fresh = append(fresh, image)
		}
	}

	after := time.Duration(0)
	switch due := memory.last.Add(foreignEvery); {
	case len(fresh) == 0:
	case now.Before(due):
		after = due.Sub(now)
	default:
		for _, image := range fresh {
			told[image] = true
		}
		memory.last = now
		a.Events.Event(a.owner, corev1.EventTypeWarning, "ImageNotOfRevision", foreignWords(fresh))
	}

	memory.told = told
	return after
}

func foreignWords(images []podplan.ForeignImage) string {
	text := "a user or a webhook wrote images that are not those of the pods' revision; they stay until the next update of the image"
	for i, image := range images {
		if i == foreignPods {
			return text + fmt.Sprintf(". And %d more", len(images)-foreignPods)
		}
		text += fmt.Sprintf(". pod %s: container %s has %s instead of %s",
			image.Pod, image.Container, shortened(image.Image), shortened(image.Want))
	}
	return text
}

func shortened(image string) string {
	if len(image) <= foreignLength {
		return image
	}
	return strings.ToValidUTF8(image[:foreignLength], "") + "…"
}
