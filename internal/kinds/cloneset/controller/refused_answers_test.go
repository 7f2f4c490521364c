package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// A webhook answers requests about one pod with another code than 403, for good. The others are updated.
func TestAWebhookOfOnePodHoldsUpNoOtherWhateverItAnswers(t *testing.T) {
	pods := corev1.Resource("pods")
	for code, err := range map[string]error{
		"403": apierrors.NewForbidden(pods, "x", errors.New("a policy says no")),
		"409": apierrors.NewConflict(pods, "x", errors.New("admission webhook denied the request: not now")),
		"429": apierrors.NewTooManyRequests("admission webhook denied the request: not now", 0),
		"500": apierrors.NewInternalError(errors.New("failed calling webhook: context deadline exceeded")),
		"504": apierrors.NewTimeoutError("timeout", 1),
	} {
		for _, policy := range []appsv1beta1.CloneSetPodUpdatePolicy{appsv1beta1.ReCreateCloneSetPodUpdatePolicy, appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy} {
			t.Run(code+" "+string(policy), func(t *testing.T) {
				s := simulate(1, clonesettest.Set(5, clonesettest.MaxUnavailable(1), clonesettest.Policy(policy)), cloneset.Features{})
				if err := s.Settle(1000); err != nil {
					t.Fatal(err)
				}
				protected, refused := "", 0
				s.Answer = func(r *simulation.Request) error {
					if r.Key.Kind != "Pod" || r.Verb != "delete" && (r.Verb != "patch" || r.Subresource != "") {
						return nil
					}
					if protected == "" {
						protected = r.Key.Name
					}
					if protected != r.Key.Name {
						return nil
					}
					refused++
					return err
				}
				s.Edit(clonesettest.Image("nginx:2"))
				s.RunFor(time.Hour)
				if got := s.set().Status.UpdatedReplicas; got < 4 {
					t.Errorf("%d of 4 updated; %d requests were refused; conditions %v: %s", got, refused, s.set().Status.Conditions, s.describe())
				} else {
					t.Logf("%d of 4; %d refused", got, refused)
				}
			})
		}
	}
}

// What a webhook answers about one pod is told, whatever its code: an update that nothing says anything about looks as if the manager slept.
func TestWhatAWebhookAnswersIsTold(t *testing.T) {
	pods := corev1.Resource("pods")
	for code, err := range map[string]error{
		"403": apierrors.NewForbidden(pods, "x", errors.New("a policy says no")),
		"404": &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 404, Message: "admission webhook denied the request: a policy says no"}},
		"409": &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 409, Message: "admission webhook denied the request: a policy says no"}},
	} {
		for _, verb := range []string{"patch", "delete", "create"} {
			t.Run(code+" "+verb, func(t *testing.T) {
				s := simulate(1, clonesettest.Set(5, clonesettest.MaxUnavailable(1)), cloneset.Features{})
				if err := s.Settle(1000); err != nil {
					t.Fatal(err)
				}
				refused := 0
				s.Answer = func(r *simulation.Request) error {
					if r.Key.Kind != "Pod" || r.Verb != verb || r.Subresource != "" {
						return nil
					}
					refused++
					return err
				}
				s.Recorded = nil
				switch verb {
				case "patch":
					s.Edit(clonesettest.Image("nginx:2"))
				case "delete":
					s.Edit(clonesettest.Replicas(4))
				case "create":
					s.Edit(clonesettest.Replicas(6))
				}
				s.RunFor(time.Hour)
				if refused == 0 {
					t.Fatal("nothing was refused")
				}
				told := fmt.Sprint(s.set().Status.Conditions, s.Recorded)
				if !strings.Contains(told, "a policy says no") {
					t.Errorf("%d requests were refused in an hour, and neither a condition nor an event says why: %s; %d pods", refused, told, len(s.active()))
				}
				if refused > 200 {
					t.Errorf("%d requests were refused in an hour", refused)
				}
			})
		}
	}
}

// A webhook answers the deletion of a pod with 404, because it does not find something else. The pod is there, and its deletion is tried again,
// when the webhook lets it go at the latest.
func TestAWebhookThatFindsSomethingElseMakesNoPodGone(t *testing.T) {
	s := simulate(1, clonesettest.Set(5, clonesettest.MaxUnavailable(1), clonesettest.Policy(appsv1beta1.ReCreateCloneSetPodUpdatePolicy)), cloneset.Features{})
	if err := s.Settle(1000); err != nil {
		t.Fatal(err)
	}
	holds, refused := true, 0
	s.Answer = func(r *simulation.Request) error {
		if holds && r.Key.Kind == "Pod" && r.Verb == "delete" {
			refused++
			return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 404,
				Message: `admission webhook "v.example.com" denied the request: tenants.example.com "shop" not found`}}
		}
		return nil
	}
	s.Edit(clonesettest.Image("nginx:2"))
	s.RunFor(10 * time.Minute)
	holds = false
	s.RunFor(24 * time.Hour)
	if got := s.set().Status.UpdatedReplicas; got != 5 {
		t.Errorf("%d of 5 pods are updated a day after deletions were allowed, %d were refused; %d pods, conditions %v, events %q", got, refused, len(s.active()),
			s.set().Status.Conditions, s.Recorded[max(len(s.Recorded)-3, 0):])
	}
}

// IPU-184: "meanwhile pods that were taken out of service for it are put back". So they are whatever the webhook answers: a pod that runs what it should serves.
func TestAPodWhoseUpdateAWebhookRefusesGoesBackIntoService(t *testing.T) {
	for _, code := range []int32{403, 404, 409, 429, 500} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			s := simulate(1, clonesettest.Set(5, clonesettest.MaxUnavailable(1)), cloneset.Features{})
			if err := s.Settle(1000); err != nil {
				t.Fatal(err)
			}
			s.Answer = func(r *simulation.Request) error {
				if r.Key.Kind == "Pod" && r.Verb == "patch" && strings.Contains(string(r.Body), `"image"`) {
					return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: "admission webhook denied the request"}}
				}
				return nil
			}
			s.Edit(clonesettest.Image("nginx:2"))
			s.RunFor(30 * time.Minute)
			out := 0
			for range 600 {
				s.RunFor(time.Second)
				for _, pod := range s.active() {
					if !readiness.Ready(pod) {
						out++
						break
					}
				}
			}
			if out > 300 {
				t.Errorf("a pod is out of service in %d of 600 seconds, half an hour after its update was refused first; conditions %v", out, s.set().Status.Conditions)
			}
		})
	}
}

// A webhook of the cluster that must answer (failurePolicy Fail) is down while a rollout in place begins. One pod at a time is out of service for the attempts, as with a policy
// that refuses, and not as many as maxUnavailable allows for as long as the webhook is down.
func TestAWebhookThatIsDownTakesOnePodOutOfServiceAtATime(t *testing.T) {
	for _, code := range []int32{403, 500} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			s := simulate(1, clonesettest.Set(10, clonesettest.MaxUnavailable(5)), cloneset.Features{})
			if err := s.Settle(1000); err != nil {
				t.Fatal(err)
			}
			s.Answer = func(r *simulation.Request) error {
				if r.Key.Kind == "Pod" && r.Verb == "patch" && strings.Contains(string(r.Body), `"image"`) {
					return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: metav1.StatusReasonInternalError,
						Message: `Internal error occurred: failed calling webhook "v.example.com": connection refused`}}
				}
				return nil
			}
			s.Edit(clonesettest.Image("nginx:2"))
			s.RunFor(5 * time.Minute)
			most := 0
			for range 300 {
				s.RunFor(time.Second)
				out := 0
				for _, pod := range s.active() {
					if !readiness.Ready(pod) {
						out++
					}
				}
				most = max(most, out)
			}
			if most > 1 {
				t.Errorf("%d of 10 pods are out of service at once, five minutes after their update failed first", most)
			}
		})
	}
}

// An API server that answers every write of a pod with an error for a while, such as one that throttles, slows down no rollout afterwards: what failed then
// failed for all pods, and not because of one.
func TestAnAPIServerThatFailedForAllSlowsDownNoRolloutAfterwards(t *testing.T) {
	rollout := func(t *testing.T, policy appsv1beta1.CloneSetPodUpdatePolicy, code int32) (took time.Duration) {
		s := simulate(1, clonesettest.Set(60, clonesettest.MaxUnavailable(3), clonesettest.Policy(policy)), cloneset.Features{})
		if err := s.Settle(1000); err != nil {
			t.Fatal(err)
		}
		fails := code > 0
		s.Answer = func(r *simulation.Request) error {
			if fails && r.Key.Kind == "Pod" {
				return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: "too busy"}}
			}
			return nil
		}
		s.Edit(clonesettest.Image("nginx:2"))
		if fails {
			s.RunFor(20 * time.Minute)
		}
		fails = false
		s.Queue.Add() // an event ends the back-off of the queue
		left := func() bool {
			return slices.ContainsFunc(s.active(), func(pod *corev1.Pod) bool {
				return pod.Spec.Containers[0].Image != "nginx:2" || !readiness.Ready(pod)
			})
		}
		for ; left() && took < 2*time.Hour; took += time.Second {
			s.RunFor(time.Second)
		}
		return took
	}
	for _, policy := range []appsv1beta1.CloneSetPodUpdatePolicy{appsv1beta1.ReCreateCloneSetPodUpdatePolicy, appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy} {
		alone := rollout(t, policy, 0)
		for _, code := range []int32{429, 500, 503} {
			if took := rollout(t, policy, code); took > alone+70*time.Second {
				t.Errorf("%s: the rollout took %s after %d had been answered for 20 minutes, and %s where nothing failed", policy, took, code, alone)
			} else {
				t.Logf("%s %d: %s, %s", policy, code, took, alone)
			}
		}
	}
}
