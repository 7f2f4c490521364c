package imagepull

import (
	"testing"
	"time"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// IMG-052: a machine was replaced by another one of the same name while no manager led, or while its watch was
// interrupted (nodeEvents lets the change of the UID pass). The NodeImage is that of the node that is gone: its
// results are of another disk, and the daemon pulls nothing that is recorded as Succeeded.
func TestNodeOfTheSameNameMadeAgain(t *testing.T) {
	image := imagepulltest.Tagged("n", imagepulltest.Result(appsv1beta1.ImagePhaseSucceeded, 2))
	image.CreationTimestamp = *imagepulltest.At(-24 * time.Hour)
	s := nodeSnapshot(image, 10*time.Second)
	s.Node.UID, s.Node.CreationTimestamp = "another", *imagepulltest.At(-time.Minute)
	if p := PlanNode(s); !p.Delete {
		t.Errorf("NodeImage of a day ago for a node made a minute ago: it stays, and says Succeeded of what the new node does not have")
	}
}
