package podplan

import (
	"cmp"
	"strconv"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/afloat-project/afloat/api/pub"
)

// WithAnnotations returns strategy with those options for pulling images ahead that are not set in its fields
// but in annotations of the workload (ASTS-286, ASTS-289, ASTS-290, ADS-184, ADS-185). Values that are not
// numbers are ignored; a percentage of pods is left to the plan.
func WithAnnotations(
	strategy *pub.InPlaceUpdateStrategy, annotations map[string]string,
) *pub.InPlaceUpdateStrategy {
	number := func(key string) *int32 {
		n, err := strconv.ParseInt(annotations[key], 10, 32)
		if err != nil || n < 0 {
			return nil
		}
		return new(int32(n))
	}

	s := cmp.Or(strategy.DeepCopy(), &pub.InPlaceUpdateStrategy{})
	if n := number(pub.ImagePreDownloadParallelism); n != nil && s.ImagePreDownloadParallelism == nil {
		s.ImagePreDownloadParallelism = new(intstr.FromInt32(*n))
	}

	s.ImagePreDownloadTimeoutSeconds = cmp.Or(s.ImagePreDownloadTimeoutSeconds,
		number(pub.ImagePreDownloadTimeoutSeconds))
	s.ImagePreDownloadMinUpdatedReadyPods = cmp.Or(s.ImagePreDownloadMinUpdatedReadyPods,
		number(pub.ImagePreDownloadMinUpdatedReadyPods))
	return s
}
