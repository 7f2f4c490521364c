package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// refuse makes the server refuse one sort of write.
func (s *simulated) refuse(verb, kind string) {
	s.Refused = func(w simulation.Write) bool { return w.Verb == verb && w.Key.Kind == kind }
}

// CS-235: each event with its type, for what it tells of, and never with the other type.
func TestEveryEventHasItsType(t *testing.T) {
	types := map[string]string{"SuccessfulCreate": "Normal", "SuccessfulDelete": "Normal", "SuccessfulUpdatePodInPlace": "Normal",
		"SuccessfulUpdatePodReCreate": "Normal",
		"CreatedImagePullJob":         "Normal", "FailedCreate": "Warning", "FailedDelete": "Warning", "FailedUpdate": "Warning", "FailedUpdatePodInPlace": "Warning",
		"FailedUpdatePodReCreate": "Warning", "ScaleUpLimited": "Warning", "FailedCreateImagePullJob": "Warning"}
	reCreate := clonesettest.Policy(appsv1beta1.ReCreateCloneSetPodUpdatePolicy)
	for name, test := range map[string]struct {
		set     func(*appsv1beta1.CloneSet)
		disturb func(*simulated)
		change  func(*appsv1beta1.CloneSet)
		want    string // of reason and message
	}{
		"a pod is created":          {nil, nil, clonesettest.Replicas(5), "SuccessfulCreate created pod web-"},
		"a pod is deleted":          {nil, nil, clonesettest.Replicas(3), "SuccessfulDelete deleted pod web-"},
		"a pod is updated in place": {nil, nil, clonesettest.Image("nginx:2"), "SuccessfulUpdatePodInPlace updating pod web-"},
		"a pod is recreated":        {reCreate, nil, clonesettest.Image("nginx:2"), "SuccessfulUpdatePodReCreate pod web-"},
		"an image is pulled ahead":  {clonesettest.Partition(4), nil, clonesettest.Image("nginx:2"), "CreatedImagePullJob "},
		"a pod is refused": {nil, func(s *simulated) { s.refuse("create", "Pod") }, clonesettest.Replicas(5),
			"FailedCreate failed to create pod web-"},
		"a claim is refused": {clonesettest.Claims("1Gi"), func(s *simulated) { s.refuse("create", "PersistentVolumeClaim") },
			clonesettest.Replicas(5),
			"FailedCreate failed to create claim data-web-"},
		"a pod's deletion is refused": {nil, func(s *simulated) { s.refuse("delete", "Pod") }, clonesettest.Replicas(3),
			"FailedDelete failed to delete pod web-"},
		"a claim's owner is refused": {clonesettest.Claims("1Gi"), func(s *simulated) { s.refuse("patch", "PersistentVolumeClaim") },
			clonesettest.Replicas(3),
			"FailedUpdate failed to hand claim data-web-"},
		"an update is impossible": {clonesettest.Policy(appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy), nil, clonesettest.Env("x"),
			"FailedUpdatePodInPlace "},
		"the mark to recreate is refused": {reCreate, func(s *simulated) { s.refuse("patch", "Pod") }, clonesettest.Image("nginx:2"),
			"FailedUpdatePodReCreate failed to mark pod web-"},
		"creation is throttled": {func(set *appsv1beta1.CloneSet) { set.Spec.ScaleStrategy.MaxUnavailable = new(intstr.FromInt32(1)) },
			func(s *simulated) { s.Node.Digests["nginx:1"] = "" }, clonesettest.Replicas(9), "ScaleUpLimited "},
		"a job is refused": {clonesettest.Partition(4), func(s *simulated) {
			s.Answer = (&refusing{err: apierrors.NewForbidden(schema.GroupResource{Resource: "imagepulljobs"}, "x",
				errors.New("no"))}).answer
		}, clonesettest.Image("nginx:2"), "FailedCreateImagePullJob "},
	} {
		t.Run(name, func(t *testing.T) {
			var options []func(*appsv1beta1.CloneSet)
			if test.set != nil {
				options = append(options, test.set)
			}
			s := simulate(1, clonesettest.Set(4, options...), cloneset.Features{PreDownload: true})
			s.serveJobs(true)
			if err := s.Settle(500); err != nil {
				t.Fatal(err)
			}
			s.Recorded = nil
			if test.disturb != nil {
				test.disturb(s)
			}
			s.Edit(test.change)
			for range 40 {
				s.Round()
				s.Pass(time.Second)
			}
			told := false
			for _, event := range s.Recorded {
				kind, rest, _ := strings.Cut(event, " ")
				reason, _, _ := strings.Cut(rest, " ")
				if want, listed := types[reason]; listed && want != kind {
					t.Errorf("not of its type: %s", event)
				}
				told = told || types[reason] == kind && strings.HasPrefix(rest, test.want)
			}
			if !told {
				t.Errorf("%q is not among %q", test.want, s.Recorded)
			}
		})
	}
}

// CS-237: that a pod will be recreated is told once for each pod and update, however often it is looked at
// while it waits for the budget. That creation is throttled is told once for each state of things, and again
// when it was over in between.
func TestEventsDoNotRepeat(t *testing.T) {
	s := atRest(t, clonesettest.Set(3, clonesettest.Policy(appsv1beta1.ReCreateCloneSetPodUpdatePolicy)), cloneset.Features{})
	// look makes passes and lets nothing else happen.
	look := func() {
		for range 30 {
			s.Events(1 << 20)
			s.Queue.Add()
			s.Manage()
			s.Pass(time.Second)
		}
	}
	recreated := func() []string { return s.reported("SuccessfulUpdatePodReCreate") }
	for update, tag := range []string{"nginx:2", "nginx:3"} {
		before := s.active()
		s.Recorded = nil
		s.Edit(clonesettest.Image(tag))
		for len(recreated()) == 0 {
			s.Round()
		}
		marked := before[slices.IndexFunc(before, func(pod *corev1.Pod) bool {
			return strings.Contains(recreated()[0],
				"pod "+pod.Name+" ")
		})].Name
		for _, pod := range before { // another one is lost before the marked one is deleted, so that this one must stay
			if pod.Name != marked {
				s.Change(podKey(pod.Name), func(o client.Object) { notReadyNow(o.(*corev1.Pod)) })
				break
			}
		}
		look()
		pod := s.active()[slices.IndexFunc(s.active(),
			func(pod *corev1.Pod) bool { return pod.Name == marked })]
		if got := len(s.active()); got != 3 {
			t.Fatalf("it did not wait: number active: got %d, want 3\n%s", got, s.describe())
		}
		if pod.Labels[pub.SpecifiedDelete] == "" {
			t.Fatalf("it did not wait: label specified delete of the pod: got nothing, want some text\n%s",
				s.describe())
		}
		if n := len(s.reported("SuccessfulUpdatePodReCreate pod " + marked + " ")); n != 1 {
			t.Errorf("update %d: while it waits: %q", update, recreated())
		}
		if err := s.Settle(300); err != nil {
			t.Fatal(err)
		}
		for _, pod := range before {
			if n := len(s.reported("SuccessfulUpdatePodReCreate pod " + pod.Name + " ")); n != 1 {
				t.Errorf("update %d: %d events of pod %s", update, n, pod.Name)
			}
		}
	}

	s = atRest(t, clonesettest.Set(1, func(set *appsv1beta1.CloneSet) { set.Spec.ScaleStrategy.MaxUnavailable = new(intstr.FromInt32(2)) }),
		cloneset.Features{})
	limited := func() int { return len(s.reported("Warning ScaleUpLimited ")) }
	scaleUp := func(to int32, want int) {
		t.Helper()
		s.Node.Digests["nginx:1"] = "" // no image: what is made now does not come up
		s.Edit(clonesettest.Replicas(to))
		if err := s.Settle(100); err != nil {
			t.Fatal(err)
		}
		look()
		if limited() != want {
			t.Errorf("%d pods are wanted: events %q, want %d", to, s.reported("ScaleUpLimited"), want)
		}
	}
	scaleUp(6, 1)
	scaleUp(7, 2) // it says how many are missing
	s.Edit(clonesettest.Replicas(3))
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	scaleUp(7, 3)
}

func notReadyNow(pod *corev1.Pod) {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			c.Status = corev1.ConditionFalse
		}
	}
}
