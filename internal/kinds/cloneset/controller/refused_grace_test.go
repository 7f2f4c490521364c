package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/lifecycle"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// A policy refuses an image, as one without a signature, in a rollout in place with a grace period. One pod at a time is out of service for the attempts, and all are back
// soon after the user has taken the template back.
func TestARefusedImageTakesOnePodOutOfServiceWithAGracePeriod(t *testing.T) {
	for _, grace := range []int32{0, 10} {
		t.Run(fmt.Sprint(grace), func(t *testing.T) {
			s := simulate(1, clonesettest.Set(10, clonesettest.MaxUnavailable(5), clonesettest.Rolling(func(r *appsv1beta1.RollingUpdateCloneSetStrategy) {
				r.InPlaceUpdateStrategy = &pub.InPlaceUpdateStrategy{GracePeriodSeconds: grace}
			})), cloneset.Features{})
			if err := s.Settle(1000); err != nil {
				t.Fatal(err)
			}
			s.Answer = func(r *simulation.Request) error {
				if r.Key.Kind == "Pod" && r.Verb == "patch" && strings.Contains(string(r.Body), `"image":"nginx:2"`) {
					return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, errors.New("a policy says no"))
				}
				return nil
			}
			out := func() (n int) {
				for _, pod := range s.active() {
					if !readiness.Ready(pod) {
						n++
					}
				}
				return n
			}
			s.Edit(clonesettest.Image("nginx:2"))
			s.RunFor(10 * time.Minute)
			most := 0
			for range 300 {
				s.RunFor(time.Second)
				most = max(most, out())
			}
			if most > 1 {
				t.Errorf("%d of 10 pods are out of service at once, ten minutes after the image was refused first", most)
			}
			s.Edit(clonesettest.Image("nginx:1"))
			s.RunFor(30 * time.Minute)
			if n := out(); n > 0 {
				t.Errorf("%d of 10 pods are out of service half an hour after the template was taken back: %s", n, s.describe())
			}
		})
	}
}

// As above, with a grace period before each update in place: the pod leaves the endpoints first, and the image is written when the period is over.
func TestARefusedUpdateHoldsUpNoOtherWithAGracePeriod(t *testing.T) {
	s := simulate(1, clonesettest.Set(5, clonesettest.MaxUnavailable(1), clonesettest.Rolling(func(r *appsv1beta1.RollingUpdateCloneSetStrategy) {
		r.InPlaceUpdateStrategy = &pub.InPlaceUpdateStrategy{GracePeriodSeconds: 10}
	})), cloneset.Features{})
	if err := s.Settle(1000); err != nil {
		t.Fatal(err)
	}
	protected, refused := "", 0
	s.Answer = func(r *simulation.Request) error {
		if r.Key.Kind != "Pod" || r.Verb != "patch" || !strings.Contains(string(r.Body), `"image":"nginx:2"`) {
			return nil
		}
		if protected == "" {
			protected = r.Key.Name
		}
		if r.Key.Name != protected {
			return nil
		}
		refused++
		return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, errors.New("a policy says no"))
	}
	s.Edit(clonesettest.Image("nginx:2"))
	s.RunFor(30 * time.Minute)
	out := 0
	for range 600 {
		s.RunFor(time.Second)
		if pod, _ := s.Get(podKey(protected)).(*corev1.Pod); pod != nil && !readiness.Ready(pod) {
			out++
		}
	}
	if out > 300 {
		t.Errorf("%s, whose update is refused, is out of service in %d of 600 seconds, half an hour later", protected, out)
	}
	if got := s.set().Status.UpdatedReplicas; got < 4 {
		t.Errorf("%d of 4 other pods are updated after 40 minutes; %d refused: %s", got, refused, s.describe())
	}
}

// As above, with a hook before each update in place, which the user's operator releases at once.
func TestARefusedUpdateHoldsUpNoOtherWithAHook(t *testing.T) {
	for _, mark := range []bool{false, true} {
		s := simulate(1, clonesettest.Set(5, clonesettest.MaxUnavailable(1), clonesettest.UpdateHook(mark), clonesettest.HookedImage("nginx:1")), cloneset.Features{})
		if err := s.Settle(1000); err != nil {
			t.Fatal(err)
		}
		protected := s.active()[0].Name
		refused := 0
		s.Answer = func(r *simulation.Request) error {
			if r.Key == podKey(protected) && r.Verb == "patch" && strings.Contains(string(r.Body), `"image"`) {
				refused++
				return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, errors.New("a policy says no"))
			}
			return nil
		}
		s.Edit(clonesettest.HookedImage("nginx:2"))
		for start := s.Now(); s.Now().Sub(start) < time.Hour; s.RunFor(time.Second) {
			for _, pod := range s.active() {
				switch state := lifecycle.State(pod); {
				case state == pub.LifecycleStatePreparingUpdate && pod.Labels["traffic"] == "on":
					s.Change(podKey(pod.Name), func(o client.Object) { delete(o.GetLabels(), "traffic") })
				case state == pub.LifecycleStateUpdated && pod.Labels["traffic"] != "on":
					s.Change(podKey(pod.Name), func(o client.Object) { o.GetLabels()["traffic"] = "on" })
				}
			}
		}
		if got := s.set().Status.UpdatedReplicas; got < 4 {
			t.Errorf("mark %t: %d of 4 other pods are updated after an hour; %d refused: %s", mark, got, refused, s.describe())
		}
	}
}
