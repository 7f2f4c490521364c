package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/simulation"
)

// templated gives a set another template.
func templated(metadata, spec string) option {
	return func(set *appsv1beta1.DaemonSet) {
		setTemplate(set, fmt.Sprintf(`{"metadata":%s,"spec":%s}`, metadata, spec))
	}
}

const plainLabels = `{"labels":{"app":"agent"}}`

// TestWhatIsUpdatedInPlace shows ADS-140, IPU-011 (part) and IPU-172: which pods keep their name, UID and
// node, by what changes and how they were made. A pod without the readiness gate is updated in place where
// the change stops no container.
func TestWhatIsUpdatedInPlace(t *testing.T) {
	of := func(image, more string) string {
		return `{"containers":[{"name":"agent","image":"` + image + `","env":[{"name":"NOTE","valueFrom":{"fieldRef":{"fieldPath":` +
			`"metadata.annotations['note']"}}}]` + more + `}]}`
	}
	const sized = `,"resources":{"requests":{"cpu":"%s"},"limits":{"cpu":"2"}}`
	plain := of("agent:1", fmt.Sprintf(sized, "1"))
	noResize := everything
	noResize.InPlace.Resize = false
	standard := rolling(func(r *appsv1beta1.RollingUpdateDaemonSet) { r.Type = appsv1beta1.StandardRollingUpdateType })
	for name, tt := range map[string]struct {
		begun    option
		change   option
		disturb  func(*simulated)
		noResize bool
		kept     bool
	}{
		"an image":                 {inPlace, templated(plainLabels, of("agent:2", fmt.Sprintf(sized, "1"))), nil, false, true},
		"a label":                  {inPlace, templated(`{"labels":{"app":"agent","tier":"a"}}`, plain), nil, false, true},
		"an annotation":            {inPlace, templated(`{"labels":{"app":"agent"},"annotations":{"a":"b"}}`, plain), nil, false, true},
		"one that is read":         {inPlace, templated(`{"labels":{"app":"agent"},"annotations":{"note":"b"}}`, plain), nil, false, true},
		"CPU":                      {inPlace, templated(plainLabels, of("agent:1", fmt.Sprintf(sized, "1500m"))), nil, false, true},
		"CPU, and the gate is off": {inPlace, templated(plainLabels, of("agent:1", fmt.Sprintf(sized, "1500m"))), nil, true, false},
		"CPU, to another class":    {inPlace, templated(plainLabels, of("agent:1", fmt.Sprintf(sized, "2")+`,"tty":true`)), nil, false, false},
		"anything else":            {inPlace, templated(plainLabels, of("agent:1", fmt.Sprintf(sized, "1")+`,"command":["x"]`)), nil, false, false},
		"Standard":                 {standard, templated(plainLabels, of("agent:2", fmt.Sprintf(sized, "1"))), nil, false, false},
		"made under Standard": {standard, func(set *appsv1beta1.DaemonSet) {
			inPlace(set)
			templated(plainLabels, of("agent:2", fmt.Sprintf(sized, "1")))(set)
		}, nil, false, false},
		"made under Standard, an annotation": {standard, func(set *appsv1beta1.DaemonSet) {
			inPlace(set)
			templated(`{"labels":{"app":"agent"},"annotations":{"a":"b"}}`, plain)(set)
		}, nil, false, true},
		"the revision is gone": {inPlace, templated(plainLabels, of("agent:2", fmt.Sprintf(sized, "1"))), func(s *simulated) {
			for _, object := range s.List("ControllerRevision", false) {
				s.Remove(revisionKey(object.GetName()))
			}
		}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			features := everything
			if tt.noResize {
				features = noResize
			}
			s := started(t, makeSet(tt.begun, templated(plainLabels, plain)), features, "n1", "n2")
			before := []any{s.only(t, "n1").UID, s.only(t, "n2").UID}
			if tt.disturb != nil {
				tt.disturb(s)
			}
			s.Edit(tt.change)
			s.RunFor(10 * time.Minute)
			after := []any{s.only(t, "n1").UID, s.only(t, "n2").UID}
			if kept := cmp.Equal(before, after); kept != tt.kept {
				t.Errorf("kept: it stays the same: got %t, want %t\n%s", kept, tt.kept, s.describe())
			} else if got := s.set().Status.UpdatedNumberScheduled; got != 2 {
				t.Errorf("kept: updated pods: got %d, want 2\n%t\n%s", got, kept, s.describe())
			} else if got := s.set().Status.NumberAvailable; got != 2 {
				t.Errorf("kept: available pods: got %d, want 2\n%t\n%s", got, kept, s.describe())
			}
			hash := s.set().Status.UpdateRevision
			for _, pod := range s.AllPods() {
				if pod.Labels[pub.ControllerRevisionHash] != hash {
					t.Errorf("label controller revision hash of the pod: got %q, want %q; pod %s is labelled %s, and the hash is %s",
						pod.Labels[pub.ControllerRevisionHash], hash, pod.Name, pod.Labels[pub.ControllerRevisionHash], hash)
				}
				if strings.Contains(hash, "agent") {
					t.Errorf("hash: got %q, want it not to contain %q; pod %s is labelled %s, and the hash is %s", hash, "agent", pod.Name,
						pod.Labels[pub.ControllerRevisionHash], hash)
				}
			}
		})
	}
}

// TestTheStepsOfAnUpdate shows ADS-141 and IPU-157: what becomes of a pod in an update in place: it is taken
// out of service and gets the image at once, with the bare hash, and its state says that it is being updated
// until it is complete. New pods have none.
func TestTheStepsOfAnUpdate(t *testing.T) {
	s := started(t, makeSet(inPlace, func(set *appsv1beta1.DaemonSet) {
		set.Spec.Lifecycle = &pub.Lifecycle{InPlaceUpdate: &pub.LifecycleHook{LabelsHandler: map[string]string{"app": "agent"}}}
	}), everything, "n1")
	if state, ok := s.only(t, "n1").Labels[pub.LifecycleState]; ok {
		t.Errorf("a new pod has state %s", state)
	}
	var steps []string
	s.BeforeWrite = func(w simulation.Write, before, after client.Object) {
		if w.Key.Kind != "Pod" {
			return
		}
		was, is := before.(*corev1.Pod), after.(*corev1.Pod)
		words := []string{w.Verb}
		if c := readiness.Condition(is, pub.InPlaceUpdateReady); !cmp.Equal(c, readiness.Condition(was, pub.InPlaceUpdateReady)) {
			words = append(words, string(c.Status))
		}
		if was.Spec.Containers[0].Image != is.Spec.Containers[0].Image {
			words = append(words, is.Spec.Containers[0].Image)
		}
		if hash := is.Labels[pub.ControllerRevisionHash]; hash != was.Labels[pub.ControllerRevisionHash] {
			words = append(words, hash)
		}
		if state := is.Labels[pub.LifecycleState]; state != was.Labels[pub.LifecycleState] {
			words = append(words, state)
		}
		steps = append(steps, strings.Join(words, " "))
	}
	s.Edit(image("agent:2"))
	s.RunFor(5 * time.Minute)
	want := []string{"patch False", "patch agent:2 " + s.set().Status.UpdateRevision + " Updating", "patch True Normal"}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// TestEventsOfUpdatesInPlace shows ADS-144 and ADS-145: what is told of updates that begin, and of those that
// are refused, with the revision. A pod that turns out not to be updatable is deleted.
func TestEventsOfUpdatesInPlace(t *testing.T) {
	s := started(t, makeSet(inPlace), everything, "n1")
	pod := s.only(t, "n1")
	s.Edit(image("agent:2"))
	s.RunFor(5 * time.Minute)
	if got := len(s.EventsWith("Normal SuccessfulUpdatePodInPlace ", pod.Name)); got != 1 {
		t.Errorf("number of events SuccessfulUpdatePodInPlace of the pod: got %d, want 1\n%q", got, s.Recorded)
	}
	if got := s.only(t, "n1").UID; got != pod.UID {
		t.Errorf("UID of the pod on n1: got %q, want %q\n%q", got, pod.UID, s.Recorded)
	}
	s.Deny(func(r *simulation.Request) bool {
		return r.Verb == "patch" && r.Key.Kind == "Pod" && r.Subresource == ""
	})
	s.Edit(image("agent:3"))
	s.RunFor(time.Minute)
	revision := "agent-" + s.set().Status.UpdateRevision
	if got := len(s.EventsWith("Warning FailedUpdatePodInPlace ", pod.Name, revision, "a policy")); got == 0 {
		t.Errorf("events FailedUpdatePodInPlace of the pod: got none, want some\n%q", s.Recorded)
	}
	s.Answer = nil
	s.RunFor(10 * time.Minute)
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == "patch" && r.Key.Kind == "Pod" && r.Subresource == "" && strings.Contains(string(r.Body), "agent:2") {
			return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), r.Key.Name,
				field.ErrorList{field.Forbidden(field.NewPath("spec"), errors.New("not this one").Error())})
		}
		return nil
	}
	s.Recorded = nil
	s.Edit(image("agent:2"))
	s.RunFor(10 * time.Minute)
	revision = "agent-" + s.set().Status.UpdateRevision
	if got := s.only(t, "n1").UID; got == pod.UID {
		t.Errorf("UID of the pod on n1: got %q, want another value\n%q\n%s", got, s.Recorded, s.describe())
	}
	if got := s.images(); got != "2" {
		t.Errorf("images: got %q, want %q\n%q\n%s", got, "2", s.Recorded, s.describe())
	}
	if got := len(s.EventsWith("Warning FailedUpdatePodInPlace ", revision)); got == 0 {
		t.Errorf("events FailedUpdatePodInPlace of the revision: got none, want some\n%q\n%s", s.Recorded,
			s.describe())
	}
	if got := len(s.EventsWith("Normal SuccessfulDelete ", pod.Name)); got != 1 {
		t.Errorf("number of events SuccessfulDelete of the pod: got %d, want 1\n%q\n%s", got, s.Recorded,
			s.describe())
	}
}

// TestEventsOfPods shows ADS-115 and ADS-195, with TestASelectorOfAll, TestPodsThatEnd,
// TestEventsOfUpdatesInPlace and TestImagesArePulledAhead: each event with its type and the name of the pod,
// and a failure with its error.
func TestEventsOfPods(t *testing.T) {
	for name, tt := range map[string]struct {
		disturb func(*simulated)
		want    string
	}{
		"a pod is created": {func(s *simulated) { s.addNode("n2", nil) }, "Normal SuccessfulCreate created pod agent-"},
		"a creation is refused": {func(s *simulated) { s.Deny(verb("create", "Pod")); s.addNode("n2", nil) },
			"Warning FailedCreate failed to create pod agent-"},
		"a pod is deleted": {func(s *simulated) { s.taint("n1", "broken", corev1.TaintEffectNoExecute) },
			"Normal SuccessfulDelete deleted pod agent-"},
		"a deletion is refused": {func(s *simulated) {
			s.Deny(verb("delete", "Pod"))
			s.taint("n1", "broken", corev1.TaintEffectNoExecute)
		}, "Warning FailedDelete failed to delete pod agent-"},
		"a failed pod is replaced": {func(s *simulated) { s.Node.Fail(s.PodsOn("n1")[0].Name) }, "Warning FailedDaemonPod deleted pod agent-"},
	} {
		t.Run(name, func(t *testing.T) {
			s := started(t, makeSet(), everything, "n1")
			tt.disturb(s)
			s.RunFor(10 * time.Second)
			told := s.EventsWith(tt.want)
			if len(told) == 0 {
				t.Errorf("told: got none, want some; %q is not among %q", tt.want, s.Recorded)
			} else if strings.Contains(tt.want, "refused") && !strings.Contains(told[0], "a policy says no") {
				t.Errorf("told first: got %q, want it to contain %q; %q is not among %q", told[0], "a policy says no",
					tt.want, s.Recorded)
			}
		})
	}
	s := started(t, makeSet(), everything, "n1")
	s.Edit(func(set *appsv1beta1.DaemonSet) { set.Spec.Selector.MatchLabels["app"] = "other" })
	for range 10 {
		s.Queue.Add()
		s.RunFor(time.Minute)
	}
	if n := len(s.EventsWith("FailedUpdatePodInPlace", "spec.selector")); n != 1 {
		t.Errorf("number of events FailedUpdatePodInPlace about the selector: got %d, want 1\n%q", n, s.Recorded)
	}
	if got := len(s.EventsWith("FailedPlacement")); got > 0 {
		t.Errorf("events FailedPlacement: got %d, want none\n%q", got, s.Recorded)
	}
}

// TestThePreDeleteHook shows ADS-151 and ADS-150 (part): a pod that waits for its hook is marked as not
// ready, where it has the gate and the set says so, and is deleted when it is let go. A pod that a user
// deletes goes at once (ADS-155 (part)).
func TestThePreDeleteHook(t *testing.T) {
	for _, mark := range []bool{true, false} {
		for _, gated := range []bool{true, false} {
			s := started(t, makeSet(drained, func(set *appsv1beta1.DaemonSet) {
				set.Spec.Lifecycle.PreDelete.MarkPodNotReady = mark
				if !gated {
					setTemplate(set, `{"metadata":{"labels":{"app":"agent","drain":"yes"}},"spec":{"containers":[{"name":"agent","image":"agent:1"}]}}`)
				}
			}), everything, "n1", "n2")
			s.Edit(func(set *appsv1beta1.DaemonSet) {
				setTemplate(set, strings.Replace(string(set.Spec.Template.Raw()), "agent:1", "agent:2", 1))
			})
			s.RunFor(5 * time.Minute)
			pod := s.only(t, "n2")
			if pod.Labels[pub.LifecycleState] != "PreparingDelete" {
				t.Fatalf("label lifecycle state of the pod: got %q, want %q\n%s", pod.Labels[pub.LifecycleState],
					"PreparingDelete", s.describe())
			}
			if pod.Annotations[pub.LifecycleTimestamp] == "" {
				t.Fatalf("annotation lifecycle timestamp of the pod: got nothing, want some text\n%s", s.describe())
			}
			if got := s.images(); got != "1 1" {
				t.Fatalf("images: got %q, want %q\n%s", got, "1 1", s.describe())
			}
			marked := false
			if c := readiness.Condition(pod, pub.KruisePodReady); c != nil {
				marked = c.Status == corev1.ConditionFalse && strings.Contains(c.Message, `{"userAgent":"Lifecycle","key":"preDeleteHook"}`)
			}
			if ready := readiness.Condition(pod, corev1.PodReady).Status == corev1.ConditionTrue; marked != (mark && gated) {
				t.Errorf("marked: got %t, want %t; mark %t, gate %t: %+v", marked, mark && gated, mark, gated, pod.Status.Conditions)
			} else if ready == marked {
				t.Errorf("ready: got %t, want another value; mark %t, gate %t: %+v", ready, mark, gated, pod.Status.Conditions)
			}
			s.edit(t, "n2", func(pod *corev1.Pod) { delete(pod.Labels, "drain") })
			s.RunFor(5 * time.Minute)
			if got := s.images(); got != "1 2" {
				t.Errorf("images: got %q, want %q\n%s", got, "1 2", s.describe())
			}
			uid := s.only(t, "n2").UID
			s.EndGracefully(podKey(s.only(t, "n2").Name))
			s.RunFor(time.Minute)
			if s.only(t, "n2").UID == uid {
				t.Error("it is held: ", s.describe())
			}
		}
	}
}

// TestARolloutOfMetadata shows ADS-W6: a template annotation such as that of kubectl rollout restart makes
// all pods anew, one by one, but in place nothing restarts for it.
func TestARolloutOfMetadata(t *testing.T) {
	restart := templated(`{"labels":{"app":"agent"},"annotations":{"kubectl.kubernetes.io/restartedAt":"now"}}`,
		`{"containers":[{"name":"agent","image":"agent:1"}]}`)
	for _, way := range []option{inPlace, func(*appsv1beta1.DaemonSet) {}} {
		s := started(t, makeSet(way), everything, "n1", "n2")
		look := func() (all []string) {
			for _, pod := range s.AllPods() {
				all = append(all, string(pod.UID)+pod.Status.ContainerStatuses[0].ContainerID)
			}
			slices.Sort(all)
			return all
		}
		before := look()
		s.Edit(restart)
		s.RunFor(5 * time.Minute)
		after := look()
		same := slices.Equal(before, after)
		isInPlace := s.set().Spec.UpdateStrategy.RollingUpdate.Type == appsv1beta1.InPlaceIfPossibleRollingUpdateType
		if same != isInPlace {
			t.Errorf("same: got %t, want %t; in place %t: %v, then %v", same, isInPlace, isInPlace, before, after)
		}
		if got := s.set().Status.UpdatedNumberScheduled; got != 2 {
			t.Errorf("updated pods: got %d, want 2; in place %t: %v, then %v", got, isInPlace, before, after)
		}
		for _, pod := range s.AllPods() {
			if pod.Annotations["kubectl.kubernetes.io/restartedAt"] != "now" {
				t.Errorf("annotation kubectl.kubernetes.io/restartedAt of the pod: got %q, want %q\n%+v",
					pod.Annotations["kubectl.kubernetes.io/restartedAt"], "now", pod.Annotations)
			}
		}
	}
}
