package controller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/simulation"
)

// A webhook answers requests about one pod with another code than 403, for good. The others are updated.
func TestAWebhookOfOnePodHoldsUpNoOtherWhateverItAnswers(t *testing.T) {
	pods := corev1.Resource("pods")
	for code, err := range map[string]error{
		"403": apierrors.NewForbidden(pods, "x", errors.New("a policy says no")),
		"404": &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 404, Message: "admission webhook denied the request"}},
		"409": apierrors.NewConflict(pods, "x", errors.New("admission webhook denied the request: not now")),
		"429": apierrors.NewTooManyRequests("admission webhook denied the request: not now", 0),
		"500": apierrors.NewInternalError(errors.New("failed calling webhook: context deadline exceeded")),
		"504": apierrors.NewTimeoutError("timeout", 1),
	} {
		for name, option := range map[string]option{"Standard": func(*appsv1beta1.DaemonSet) {}, "in place": inPlace} {
			t.Run(code+" "+name, func(t *testing.T) {
				s := started(t, makeSet(option), daemonset.Features{}, "n1", "n2", "n3")
				refused := 0
				s.Answer = func(r *simulation.Request) error {
					pod, _ := s.Get(r.Key).(*corev1.Pod)
					if (r.Verb == "delete" || r.Verb == "patch" && r.Subresource == "") && pod != nil && pod.Spec.NodeName == "n3" {
						refused++
						return err
					}
					return nil
				}
				s.Edit(image("agent:2"))
				s.RunFor(time.Hour)
				if n := s.with("agent:2"); n < 2 {
					t.Errorf("after an hour %d of 2 other pods are updated; %d requests were refused: %s", n, refused, s.describe())
				} else {
					t.Logf("%d of 2; %d requests refused", n, refused)
				}
			})
		}
	}
}

// ADS-111: a webhook refuses the pod of the first node with a code other than 403, for good. The others get theirs.
func TestARefusedCreationHoldsUpNoOtherWhateverTheWebhookAnswers(t *testing.T) {
	for _, code := range []int32{403, 404, 409, 422, 429, 500, 503, 504} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			s := simulate(1, makeSet(), daemonset.Features{}, "n1", "n2", "n3")
			refused := 0
			s.Answer = func(r *simulation.Request) error {
				if r.Verb == "create" && r.Key.Name == nodes.PodName(setKey.Name, string(s.set().UID), "n1", 0) {
					refused++
					return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: "admission webhook denied the request"}}
				}
				return nil
			}
			s.RunFor(time.Hour)
			if n := s.with("agent:1"); n != 2 || refused > 200 {
				t.Errorf("after an hour %d of 2 other nodes have a pod, %d requests were refused; conditions %v, events %q",
					n, refused, s.set().Status.Conditions, s.Recorded)
			}
		})
	}
}
