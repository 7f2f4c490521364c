package imagepull

import (
	"math"
	"testing"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// IMG-086: whatever version a node has written into its own status, and whoever wrote the one in the spec,
// the next one is accepted.
func TestVersionsOfAnySortAreFollowed(t *testing.T) {
	for before, want := range map[int64]int64{-5: 0, -1: 0, 0: 1, 7: 8, math.MaxInt64 - 1: math.MaxInt64, math.MaxInt64: 0,
		math.MinInt64: 0} {
		reported := imagepulltest.Tagged("n", imagepulltest.Result(appsv1beta1.ImagePhaseFailed, before),
			func(n *appsv1beta1.NodeImage) { n.Spec.Images = nil })
		others := imagepulltest.Tagged("n", func(n *appsv1beta1.NodeImage) {
			n.Spec.Images["app"].Tags[0].Version, n.Spec.Images["app"].Tags[0].OwnerReferences = before, nil
		})
		for name, node := range map[string]*appsv1beta1.NodeImage{"status": reported, "spec": others} {
			images, err := Assigner{Job: imagepulltest.Job(), Now: imagepulltest.Noon, Random: func() float64 { return 0 }}.Assign(node)
			if err != nil {
				t.Fatalf("%s %d: unexpected error: %v\n%+v", name, before, err, images["app"])
			} else if images["app"].Tags[0].Version != want {
				t.Fatalf("%s %d: version of the first tag of the image app: got %d, want %d\n%+v\n%v", name, before,
					images["app"].Tags[0].Version, want,
					images["app"], err)
			}
			node.Spec.Images = map[string]appsv1beta1.ImageSpec{"app": *images["app"]}
			if err := CheckNodeImage(node, nil); err != nil {
				t.Errorf("checking the NodeImage, %s %d: %v", name, before, err)
			}
		}
	}
}
