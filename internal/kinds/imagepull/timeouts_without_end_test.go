package imagepull

import (
	"math"
	"testing"
	"time"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// IMG-059, IMG-133: a tag waits for its turn behind the pull of another tenant, who wrote "never" as his timeout
// (2147483647 s, the most there is) and allows more than three further attempts. That pull may take longer than any
// number of seconds, so that the tag that waits for it must not be given up, as it is not behind a pull of an hour.
func TestAnImageWaitsForAPullWithoutEnd(t *testing.T) {
	for _, backoff := range []int32{3, 5, 10, 100} {
		n := imagepulltest.Tagged("n", imagepulltest.Result(appsv1beta1.ImagePhaseWaiting, 2))
		n.Spec.Images["app"].Tags[0].PullPolicy.ActiveDeadlineSeconds = new(int64(1800))
		n.Spec.Images["b"] = appsv1beta1.ImageSpec{Tags: []appsv1beta1.ImageTagSpec{{Tag: "1", CreatedAt: imagepulltest.At(0),
			PullPolicy: &appsv1beta1.ImageTagPullPolicy{TimeoutSeconds: new(int32(math.MaxInt32)), BackoffLimit: &backoff}}}}
		n.Status.ImageStatuses["b"] = appsv1beta1.ImageStatus{Tags: []appsv1beta1.ImageTagStatus{{Tag: "1", Phase: "Pulling"}}}
		s := nodeSnapshot(n, time.Hour)
		s.Progress = imagepulltest.Noon
		for _, g := range PlanNode(s).GaveUp {
			t.Errorf("backoffLimit %d of the pull under way: image %s, which waits, is given up: %s", backoff, g.Image, g.Message)
		}
	}
}
