package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// IPU-184 (part): a webhook of the cluster is down for some seconds during a rollout in place. The rollout goes on soon after it is back, as it does without
// minReadySeconds, and not only when these have passed for the pods whose update failed.
func TestARolloutGoesOnSoonAfterAShortOutageOfAWebhookWithMinReadySeconds(t *testing.T) {
	for _, seconds := range []int32{0, 600, 3600} {
		t.Run(fmt.Sprint(seconds), func(t *testing.T) {
			s := simulate(1, clonesettest.Set(10, clonesettest.MaxUnavailable(2), clonesettest.MinReadySeconds(seconds)), cloneset.Features{})
			s.RunFor(2 * time.Hour)
			if err := s.Settle(1000); err != nil {
				t.Fatal(err)
			}
			down := true
			s.Answer = func(r *simulation.Request) error {
				if down && r.Key.Kind == "Pod" && r.Verb == "patch" && r.Subresource == "" && strings.Contains(string(r.Body), `"image"`) {
					return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonInternalError,
						Message: `Internal error occurred: failed calling webhook "v.example.com": connection refused`}}
				}
				return nil
			}
			s.Edit(clonesettest.Image("nginx:2"))
			s.RunFor(5 * time.Second)
			down = false
			s.RunFor(5 * time.Minute)
			if got := s.set().Status.UpdatedReplicas; got < 2 {
				t.Errorf("%d of 10 pods are updated five minutes after the webhook was down for five seconds, and two may be unavailable: %s", got, s.describe())
			}
		})
	}
}

// IPU-184 (part): a single request of a rollout in place fails, such as one that an API server throttles or of which a webhook answers too late. The pod whose
// update failed is tried again at once, as it serves nobody yet: a failure costs seconds, and not minReadySeconds.
func TestOneRequestThatFailsOnceDelaysARolloutBySecondsAlone(t *testing.T) {
	rollout := func(t *testing.T, fail bool) (took time.Duration) {
		s := simulate(1, clonesettest.Set(6, clonesettest.MaxUnavailable(1), clonesettest.MinReadySeconds(300)), cloneset.Features{})
		s.RunFor(time.Hour)
		if err := s.Settle(1000); err != nil {
			t.Fatal(err)
		}
		s.Answer = func(r *simulation.Request) error {
			if fail && r.Key.Kind == "Pod" && r.Verb == "patch" && r.Subresource == "" && strings.Contains(string(r.Body), `"image"`) {
				fail = false
				return apierrors.NewTooManyRequests("the server has received too many requests and has asked us to try again later", 1)
			}
			return nil
		}
		s.Edit(clonesettest.Image("nginx:2"))
		for took == 0 || s.set().Status.UpdatedAvailableReplicas < 6 && took < 3*time.Hour {
			s.RunFor(time.Minute)
			took += time.Minute
		}
		return took
	}
	alone := rollout(t, false)
	if took := rollout(t, true); took > alone+2*time.Minute {
		t.Errorf("the rollout took %s with one request that failed, and %s where none failed", took, alone)
	}
}
