package controller

import (
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/internal/simulation"
)

// BJ-073: a webhook refuses the pod of the first node with a code other than 403, for good. The others get theirs.
func TestARefusedCreationHoldsUpNoOtherWhateverTheWebhookAnswers(t *testing.T) {
	for _, code := range []int32{403, 404, 409, 422, 429, 500, 504} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			s := simulate(1, makeJob(), "n1", "n2", "n3")
			refused := 0
			s.Answer = func(r *simulation.Request) error {
				if r.Verb == "create" && r.Key.Name == podName(s, "n1") {
					refused++
					return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: "admission webhook denied the request"}}
				}
				return nil
			}
			s.RunFor(time.Hour)
			if n := len(s.AllPods()); n != 2 || refused > 200 {
				t.Errorf("after an hour %d of 2 other nodes have a pod, %d requests were refused", n, refused)
			}
		})
	}
}
