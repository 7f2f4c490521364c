package controller

import (
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/simulation"
)

// A webhook answers requests about one pod with another code than 403, for good. The others are updated.
func TestAWebhookOfOnePodHoldsUpNoOtherWhateverItAnswers(t *testing.T) {
	for _, code := range []int32{403, 404, 409, 429, 500, 504} {
		for name, option := range map[string]func(*appsv1beta1.StatefulSet){"recreate": func(*appsv1beta1.StatefulSet) {}, "in place": inPlace} {
			t.Run(fmt.Sprint(code, " ", name), func(t *testing.T) {
				s := simulate(1, makeSet(5, unordered, option), statefulset.Features{})
				s.RunFor(5 * time.Minute)
				refused := 0
				s.Answer = func(r *simulation.Request) error {
					if r.Key == podKey("web-4") && (r.Verb == "delete" || r.Verb == "patch" && r.Subresource == "") {
						refused++
						return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: "admission webhook denied the request"}}
					}
					return nil
				}
				s.Edit(image("nginx:2"))
				s.RunFor(time.Hour)
				if got := s.set().Status.UpdatedReplicas; got < 4 {
					t.Errorf("%d of 4 pods updated; %d requests refused; conditions %v: %s", got, refused, s.set().Status.Conditions, s.describe())
				} else {
					t.Logf("%d of 4; %d refused", got, refused)
				}
			})
		}
	}
}
