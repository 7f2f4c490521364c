package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// foreignEvents lets time pass, with every pass that the last one asked for, and returns what was told of
// images that others wrote.
func foreignEvents(s *simulated, during time.Duration) []string {
	s.Recorded, s.Quiet = nil, false
	for end := s.Now().Add(during); s.Now().Before(end); s.Pass(time.Second) {
		s.Round()
	}
	return slices.DeleteFunc(slices.Clone(s.Recorded), func(event string) bool { return !strings.Contains(event, "ImageNotOfRevision") })
}

func (s *simulated) setImageByHand(pod, image string) {
	s.Change(podKey(pod), func(o client.Object) { o.(*corev1.Pod).Spec.Containers[0].Image = image })
}

// IPU-326 (part): somebody mends an incident with kubectl set image on a pod, and forgets it. Months later
// nobody knew why one pod behaved unlike the others: the set said nothing. Now an event names the pod and
// both images, once; the image stays.
func TestAnImageSetByHandIsTold(t *testing.T) {
	for _, p := range []appsv1beta1.CloneSetPodUpdatePolicy{appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy,
		appsv1beta1.ReCreateCloneSetPodUpdatePolicy} {
		s := atRest(t, clonesettest.Set(3, clonesettest.Policy(p)), cloneset.Features{})
		name, writes := s.active()[1].Name, len(s.Writes)
		s.setImageByHand(name, "nginx:debug")
		told := foreignEvents(s, time.Hour)
		if len(told) != 1 {
			t.Errorf("%s: number told: got %d, want 1\n%q", p, len(told), told)
		} else if !strings.HasPrefix(told[0], "Warning ImageNotOfRevision ") {
			t.Errorf("%s: told first: got %q, want it to begin with %q\n%q", p, told[0],
				"Warning ImageNotOfRevision ", told)
		} else if !strings.Contains(told[0], "pod "+name+": container nginx has nginx:debug instead of nginx:1") {
			t.Errorf("%s: told first: got %q, want it to contain %q\n%q", p, told[0],
				"pod "+name+": container nginx has nginx:debug instead of nginx:1", told)
		}
		if s.active()[1].Spec.Containers[0].Image != "nginx:debug" {
			t.Errorf("%s: the image did not stay", p)
		}
		for _, w := range s.Writes[writes:] {
			if w.Key.Kind == "Pod" {
				t.Errorf("%s: kind of the key: got %q, want another value\n%v", p, w.Key.Kind, w)
			}
		}
		s.setImageByHand(name, "nginx:debug2") // another image is other news
		if told := foreignEvents(s, time.Hour); len(told) != 1 {
			t.Errorf("%s: number told: got %d, want 1\n%q", p, len(told), told)
		} else if !strings.Contains(told[0], "nginx:debug2") {
			t.Errorf("%s: told first: got %q, want it to contain %q\n%q", p, told[0], "nginx:debug2", told)
		}
		s.setImageByHand(name, "nginx:1")
		foreignEvents(s, time.Hour)
		s.setImageByHand(name, "nginx:debug2") // and so is one that comes back
		if told := foreignEvents(s, time.Hour); len(told) != 1 {
			t.Errorf("%s: number told: got %d, want 1\n%q", p, len(told), told)
		}
	}
}

// IPU-326 (part): an image that another stored revision names is a lost update. It is written again, which
// has events of its own.
func TestAnImageOfAnotherRevisionIsMendedAndNotTold(t *testing.T) {
	s := atRest(t, clonesettest.Set(2), cloneset.Features{})
	s.Edit(clonesettest.Image("nginx:2"))
	if told := foreignEvents(s, time.Hour); len(told) != 0 {
		t.Errorf("a rollout: %q", told)
	}
	s.setImageByHand(s.active()[0].Name, "nginx:1")
	if told := foreignEvents(s, time.Hour); len(told) != 0 {
		t.Errorf("number told: got %d, want 0\n%q\n%s", len(told), told, s.active()[0].Spec.Containers[0].Image)
	} else if got := s.active()[0].Spec.Containers[0].Image; got != "nginx:2" {
		t.Errorf("image of the first container of the first active: got %q, want %q\n%q", got, "nginx:2", told)
	}
}

// IPU-326 (part): a webhook that gives every pod the image of a mirror does not fill the events of its set,
// nor drive out those that matter.
func TestAMirrorForAllImagesFillsNoEvents(t *testing.T) {
	s := atRest(t, clonesettest.Set(50), cloneset.Features{})
	for i, pod := range s.active() {
		if i < 30 {
			s.setImageByHand(pod.Name, "mirror.example/"+strings.Repeat("very-", 100)+"long/nginx:1")
		}
	}
	told := foreignEvents(s, 5*time.Minute)
	if len(told) != 1 {
		t.Fatalf("number told: got %d, want 1; %d bytes: %q", len(told), len(strings.Join(told, "")), told)
	} else if strings.Count(told[0], "pod web-") != 3 {
		t.Fatalf(`number of pods told of: got %d, want 3; %d bytes: %q`, strings.Count(told[0], "pod web-"),
			len(strings.Join(told, "")), told)
	} else if !strings.HasSuffix(told[0], "And 27 more") {
		t.Fatalf("told first: got %q, want it to end with %q; %d bytes: %q", told[0], "And 27 more",
			len(strings.Join(told, "")), told)
	} else if len(told[0]) > 1024 {
		t.Fatalf("length of what was told first: got %d, want at most 1024; %d bytes: %q", len(told[0]),
			len(strings.Join(told, "")), told)
	}
	for i, pod := range s.active() {
		if i >= 30 {
			s.setImageByHand(pod.Name, "mirror.example/nginx:1")
			s.Pass(time.Second)
			s.Round()
		}
	}
	if told := foreignEvents(s, 20*time.Minute); len(told) != 1 {
		t.Errorf("number told: got %d, want 1\n%q", len(told), told)
	} else if !strings.HasSuffix(told[0], "And 17 more") {
		t.Errorf("told first: got %q, want it to end with %q\n%q", told[0], "And 17 more", told)
	}
}
