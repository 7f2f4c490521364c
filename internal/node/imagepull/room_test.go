package imagepull

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/wording"
	pulljobs "github.com/afloat-project/afloat/internal/kinds/imagepull"
)

// Jobs of two namespaces use the room that each of them has in a NodeImage (IMG-097), and all of their pulls fail
// with a long text, which is their registry's choice. The API server stores no object of more than 1.5 MiB: the
// daemon must still be able to write the results of everybody.
func TestResultsOfTwoTenantsFitIntoTheNodeImage(t *testing.T) {
	node := &appsv1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "n"},
		Spec: appsv1beta1.NodeImageSpec{Images: map[string]appsv1beta1.ImageSpec{}}}
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, namespace := range []string{"a", "b"} {
		for i := 0; ; i++ {
			job := &appsv1beta1.ImagePullJob{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint(i),
					UID: types.UID(fmt.Sprintf("0f1e2d3c-0000-0000-%s000-%012d", namespace, i))},
				Spec: appsv1beta1.ImagePullJobSpec{Image: fmt.Sprintf("r.example/%s:%d", namespace, i)},
			}
			images, err := pulljobs.Assigner{Job: job, Now: now, Random: func() float64 { return 0 }}.Assign(node)
			if errors.Is(err, pulljobs.ErrFull) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			for name, image := range images {
				node.Spec.Images[name] = *image
			}
		}
	}
	s := snapshot{object: node, tasks: map[key]appsv1beta1.ImageTagStatus{}, now: now}
	at := metav1.NewTime(now)
	for name, image := range node.Spec.Images {
		for _, tag := range image.Tags {
			s.tasks[key{name, tag.Tag}] = appsv1beta1.ImageTagStatus{Tag: tag.Tag, Version: tag.Version, Phase: failed,
				StartTime: &at, CompletionTime: &at, Message: wording.Bound(strings.Repeat("unauthorized ", 1000))}
		}
	}
	node.Status = newPlan(s).status
	body, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	if most := 3 << 19; len(body) > most {
		t.Errorf("NodeImage with the results of %d tags of two namespaces: %d bytes, the API server stores %d at most",
			node.Status.Desired, len(body), most)
	}
}
