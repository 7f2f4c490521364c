package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
)

func inOrder(*appsv1beta1.StatefulSet) {} // which is the default

func inParallel(set *appsv1beta1.StatefulSet) {
	set.Spec.PodManagementPolicy = appsv1beta1.ParallelPodManagement
}

// said tells whether there was an event that begins like this and has the words.
func (s *simulated) said(begin string, words ...string) bool {
	return slices.ContainsFunc(s.Recorded, func(event string) bool {
		return strings.HasPrefix(event, begin) && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(event, word) })
	})
}

func condition(set *appsv1beta1.StatefulSet, of appsv1beta1.StatefulSetConditionType) string {
	for _, c := range set.Status.Conditions {
		if c.Type == of {
			return c.Message
		}
	}
	return ""
}

const (
	failedCreate = appsv1beta1.StatefulSetConditionFailedCreatePod
	failedUpdate = appsv1beta1.StatefulSetConditionFailedUpdatePod
)

// TestEveryFailureIsToldAndTriedAgain shows ASTS-117: whichever request is refused, the status is written
// with what is known, and the request is made again, less and less often.
func TestEveryFailureIsToldAndTriedAgain(t *testing.T) {
	verb := func(verb, kind string) func(*simulation.Request) bool {
		return func(r *simulation.Request) bool { return r.Verb == verb && r.Key.Kind == kind }
	}
	for name, tt := range map[string]struct {
		denied    func(*simulation.Request) bool
		change    func(*simulated)
		condition appsv1beta1.StatefulSetConditionType
	}{
		"a revision is created": {verb("create", "ControllerRevision"), func(s *simulated) { s.Edit(image("nginx:2")) }, failedUpdate},
		"a revision is raised": {verb("patch", "ControllerRevision"), func(s *simulated) {
			s.Edit(image("nginx:2"))
			s.ActFor(time.Minute)
			s.Edit(image("nginx:1"))
		}, failedUpdate},
		"a revision is adopted": {verb("patch", "ControllerRevision"), func(s *simulated) {
			s.storeRevision("left", map[string]string{"app": "web"})
			s.Edit(func(*appsv1beta1.StatefulSet) {})
		}, failedUpdate},
		"the set is read, to adopt": {func(r *simulation.Request) bool { return r.Verb == "get" && r.Key == setKey }, func(s *simulated) {
			s.storeRevision("left", map[string]string{"app": "web"})
			s.Edit(func(*appsv1beta1.StatefulSet) {})
		}, failedUpdate},
		"a pod is created": {verb("create", "Pod"), func(s *simulated) { s.Edit(scaled(5)) }, failedCreate},
		"a PVC is created": {verb("create", "PersistentVolumeClaim"), func(s *simulated) { s.Edit(scaled(5)) }, failedCreate},
		"a PVC gets its owners": {verb("patch", "PersistentVolumeClaim"), func(s *simulated) {
			s.Edit(func(set *appsv1beta1.StatefulSet) {
				set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1beta1.StatefulSetClaimRetentionPolicy{
					WhenDeleted: appsv1beta1.DeleteStatefulSetClaims, WhenScaled: appsv1beta1.RetainStatefulSetClaims}
			})
		}, failedCreate},
		"a PVC grows": {verb("patch", "PersistentVolumeClaim"), func(s *simulated) {
			s.Edit(func(set *appsv1beta1.StatefulSet) { setClaims(set, []string{"data"}, "2Gi") })
		}, failedUpdate},
		"a condemned pod is deleted": {verb("delete", "Pod"), func(s *simulated) { s.Edit(scaled(1)) }, failedCreate},
		"a pod is deleted to be made anew": {verb("delete", "Pod"), func(s *simulated) {
			s.Edit(func(set *appsv1beta1.StatefulSet) {
				set.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = appsv1beta1.ReCreateStatefulSetPodUpdatePolicy
				image("nginx:2")(set)
			})
		}, failedCreate},
		"a pod is taken out of service": {func(r *simulation.Request) bool { return r.Key.Kind == "Pod" && r.Subresource == "status" },
			func(s *simulated) { s.Edit(image("nginx:2")) }, failedUpdate},
		"a pod is updated": {func(r *simulation.Request) bool {
			return r.Verb == "patch" && r.Key.Kind == "Pod" && r.Subresource == ""
		},
			func(s *simulated) { s.Edit(image("nginx:2")) }, failedUpdate},
		"a pod gets its label": {verb("patch", "Pod"), func(s *simulated) {
			s.Change(podKey("web-0"), func(o client.Object) { delete(o.GetLabels(), "statefulset.kubernetes.io/pod-name") })
			s.Edit(func(*appsv1beta1.StatefulSet) {})
		}, failedUpdate},
		"a former revision is deleted": {verb("delete", "ControllerRevision"), func(s *simulated) {
			s.Edit(func(set *appsv1beta1.StatefulSet) {
				none := int32(0)
				set.Spec.RevisionHistoryLimit = &none
				image("nginx:2")(set)
			})
		}, failedUpdate},
	} {
		for policy, option := range map[string]func(*appsv1beta1.StatefulSet){"ordered": inOrder, "parallel": inParallel} {
			t.Run(policy+", "+name, func(t *testing.T) {
				s := simulate(1, makeSet(3, inPlace, option, func(set *appsv1beta1.StatefulSet) {
					setClaims(set, []string{"data"}, "1Gi")
					set.Spec.VolumeClaimUpdateStrategy.Type = appsv1beta1.OnPodRollingUpdateStatefulSetClaimUpdate
				}), statefulset.Features{DeleteClaims: true, ResizeClaims: true})
				s.ActFor(time.Minute)
				generation := s.set().Generation
				denied := s.Deny(tt.denied)
				tt.change(s)
				s.ActFor(10 * time.Minute)
				set := s.set()
				if set.Generation == generation {
					t.Errorf("generation: got %d, want another value; generation %d, %d pods, status %+v", set.Generation, set.Generation,
						len(s.AllPods()), set.Status)
				}
				if set.Status.ObservedGeneration != set.Generation {
					t.Errorf("observed generation: got %d, want %d; generation %d, %d pods, status %+v", set.Status.ObservedGeneration,
						set.Generation, set.Generation, len(s.AllPods()), set.Status)
				}
				if want := len(s.AllPods()); int(set.Status.Replicas) != want {
					t.Errorf("replicas: got %d, want %d; generation %d, %d pods, status %+v", int(set.Status.Replicas), want, set.Generation,
						len(s.AllPods()), set.Status)
				}
				if set.Status.LabelSelector != "app=web" {
					t.Errorf("label selector: got %q, want %q; generation %d, %d pods, status %+v", set.Status.LabelSelector, "app=web",
						set.Generation, len(s.AllPods()), set.Status)
				}
				if said := condition(s.set(), tt.condition); !strings.Contains(said, "a policy says no") {
					t.Errorf("conditions %+v", s.set().Status.Conditions)
				}
				n := len(*denied)
				if n < 5 || n > 200 {
					t.Errorf("attempts: got %d, want 5 to 200", n)
				} else if first, last := (*denied)[n/2].Sub((*denied)[0]), (*denied)[n-1].Sub((*denied)[n/2]); last <= first {
					t.Errorf("the first half of %d attempts took %s, the second %s", n, first, last)
				}
				s.Answer = nil
				s.ActFor(30 * time.Minute)
				if set := s.set(); len(set.Status.Conditions) > 0 {
					t.Errorf("when it is allowed: conditions: got %v, want none\n%s", set.Status.Conditions, s.describe())
				} else if set.Status.AvailableReplicas != *set.Spec.Replicas {
					t.Errorf("when it is allowed: available replicas: got %d, want %d\n%s", set.Status.AvailableReplicas, *set.Spec.Replicas,
						s.describe())
				} else if set.Status.UpdatedReplicas != set.Status.Replicas {
					t.Errorf("when it is allowed: updated replicas: got %d, want %d\n%s", set.Status.UpdatedReplicas, set.Status.Replicas,
						s.describe())
				}
			})
		}
	}
}

func scaled(n int32) func(*appsv1beta1.StatefulSet) {
	return func(set *appsv1beta1.StatefulSet) { set.Spec.Replicas = &n }
}

// TestReservedOrdinalsThatNobodyUnderstands shows ASTS-095: they are told, and nothing is changed until they
// are understood.
func TestReservedOrdinalsThatNobodyUnderstands(t *testing.T) {
	s := simulate(1, makeSet(3, inParallel, inPlace, func(set *appsv1beta1.StatefulSet) {
		setClaims(set, []string{"data"}, "1Gi")
		set.Spec.ReserveOrdinals = []intstr.IntOrString{intstr.FromInt32(1)}
	}), statefulset.Features{DeleteClaims: true})
	s.ActFor(time.Minute)
	s.Edit(func(set *appsv1beta1.StatefulSet) {
		set.Spec.ReserveOrdinals = append(set.Spec.ReserveOrdinals, intstr.FromString("a-b"))
		image("nginx:2")(set)
		scaled(7)(set)
	})
	s.Node.Fail("web-0")
	s.Remove(podKey("web-2"))
	writes := len(s.Writes)
	s.ActFor(10 * time.Minute)
	for _, w := range s.Writes[writes:] {
		if w.Key != setKey {
			t.Errorf("key: got %+v, want %+v; %v is written", w.Key, setKey, w)
		}
		if w.Subresource != "status" {
			t.Errorf("subresource: got %q, want %q; %v is written", w.Subresource, "status", w)
		}
	}
	if !s.said("Warning FailedUpdatePodInPlace ", "spec.reserveOrdinals[1]", `"a-b"`) {
		t.Errorf("s.said(\"Warning FailedUpdatePodInPlace \", \"spec.reserveOrdinals[1]\", `\"a-b\"`): got false, want true\n%v\n%+v",
			s.Recorded, s.set().Status.Conditions)
	}
	if got := condition(s.set(), failedUpdate); !strings.Contains(got, "spec.reserveOrdinals[1]") {
		t.Errorf("condition about failed updates: got %q, want it to contain %q\n%v\n%+v", got, "spec.reserveOrdinals[1]", s.Recorded,
			s.set().Status.Conditions)
	}
	s.Edit(func(set *appsv1beta1.StatefulSet) { set.Spec.ReserveOrdinals[1] = intstr.FromString("4-5") })
	s.ActFor(time.Minute)
	if is := s.set().Status; is.UpdatedAvailableReplicas != 7 {
		t.Errorf("updated and available replicas: got %d, want 7\n%s", is.UpdatedAvailableReplicas, s.describe())
	} else if got := s.Pod("web-9"); got == nil {
		t.Errorf("pod web-9: got nil, want a value\n%s", s.describe())
	} else if len(is.Conditions) > 0 {
		t.Errorf("conditions: got %v, want none\n%s", is.Conditions, s.describe())
	}
}

// TestANameThatIsTaken shows ASTS-106: a pod of others has the name of a slot. That is told, the other slots
// get their pods, and this one when it is free. A pod that the caches do not show yet is found when the API
// server refuses its name.
func TestANameThatIsTaken(t *testing.T) {
	for name, hidden := range map[string]bool{"known": false, "not known yet": true} {
		t.Run(name, func(t *testing.T) {
			s := simulate(1, makeSet(3, inParallel), statefulset.Features{})
			yes := true
			other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{"app": "web"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web",
					UID: s.List("Node", false)[0].GetUID(), Controller: &yes}}}}
			s.Store(podKey("web-1"), other)
			if hidden {
				s.Manage() // with what the caches have
				if !s.said("Warning FailedCreate ", "pod web-1", "already exists") {
					t.Errorf(`FailedCreate is told of web-1: got false, want true; %v, again at %s`, s.Recorded,
						s.Queue.Due())
				}
				if s.Queue.Due().IsZero() {
					t.Errorf("nothing is due: got true, want false; %v, again at %s", s.Recorded, s.Queue.Due())
				}
				if len(s.List("Pod", false)) != 2 { // itself, and the one before it
					t.Errorf("pods: want two: %s", s.describe())
				}
			}
			attempts := s.Deny(func(r *simulation.Request) bool { return r.Verb == "create" && r.Key.Name == "web-1" })
			s.ActFor(10 * time.Minute)
			if got := s.Pod("web-0"); got == nil {
				t.Errorf(`pod web-0: got nil, want a value; %d attempts: %s`, len(*attempts), s.describe())
			} else if got := s.Pod("web-2"); got == nil {
				t.Errorf(`pod web-2: got nil, want a value; %d attempts: %s`, len(*attempts), s.describe())
			} else if got, want := controllerOf(s.Pod("web-1")), s.set().UID; got == want {
				t.Errorf(`owner of pod web-1: got %q, want another value; %d attempts: %s`, got, len(*attempts), s.describe())
			} else if len(*attempts) > 0 {
				t.Errorf("*attempts: got %v, want none; %d attempts: %s", *attempts, len(*attempts), s.describe())
			}
			if !s.said("Warning FailedCreate ", "web-1") {
				t.Errorf("FailedCreate is told of web-1: got false, want true\n%v\n%+v", s.Recorded, s.set().Status.Conditions)
			}
			if got := condition(s.set(), failedCreate); !strings.Contains(got, "pod web-1 exists") {
				t.Errorf("condition about failed creations: got %q, want it to contain %q\n%v\n%+v", got, "pod web-1 exists", s.Recorded,
					s.set().Status.Conditions)
			}
			s.Answer = nil
			s.Remove(podKey("web-1"))
			s.ActFor(time.Minute)
			is := s.set().Status
			if is.AvailableReplicas != 3 {
				t.Errorf("available replicas: got %d, want 3\n%s", is.AvailableReplicas, s.describe())
			}
			if len(is.Conditions) > 0 {
				t.Errorf("conditions: got %v, want none\n%s", is.Conditions, s.describe())
			}
			if got, want := controllerOf(s.Pod("web-1")), s.set().UID; got != want {
				t.Errorf("owner of pod web-1: got %q, want %q\n%s", got, want, s.describe())
			}
		})
	}
}

// TestInPlaceOnly shows ASTS-162: a pod that cannot be updated in place is told of by its name, and others go
// on. Under ReCreate all are deleted, whatever changes.
func TestInPlaceOnly(t *testing.T) {
	only := func(set *appsv1beta1.StatefulSet) {
		set.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = appsv1beta1.InPlaceOnlyStatefulSetPodUpdatePolicy
	}
	hostNetwork := func(image string) func(*appsv1beta1.StatefulSet) {
		return func(set *appsv1beta1.StatefulSet) {
			setTemplate(set, `{"metadata":{"labels":{"app":"web"}},"spec":{"hostNetwork":true,"containers":[
				{"name":"nginx","image":"`+image+`"}]}}`)
		}
	}
	for _, option := range []func(*appsv1beta1.StatefulSet){inOrder, inParallel} {
		s := simulate(1, makeSet(2, only, option, func(set *appsv1beta1.StatefulSet) {
			set.Spec.UpdateStrategy.Type = appsv1beta1.OnDeleteStatefulSetStrategyType
		}), statefulset.Features{})
		s.ActFor(time.Minute)
		s.Edit(hostNetwork("nginx:1"))
		s.EndGracefully(podKey("web-0")) // it comes back with the network of its host, which the other has not
		s.ActFor(time.Minute)
		uids := map[string]string{"web-0": string(s.Pod("web-0").UID), "web-1": string(s.Pod("web-1").UID)}
		s.Edit(func(set *appsv1beta1.StatefulSet) {
			hostNetwork("nginx:2")(set)
			set.Spec.UpdateStrategy.Type = appsv1beta1.RollingUpdateStatefulSetStrategyType
		})
		s.ActFor(time.Minute)
		for name, want := range map[string]string{"web-0": "nginx:2", "web-1": "nginx:1"} {
			if pod := s.Pod(name); string(pod.UID) != uids[name] {
				t.Errorf("UID of the pod: got %q, want %q; pod %s: %s", string(pod.UID), uids[name], name, s.describe())
			} else if pod.Spec.Containers[0].Image != want {
				t.Errorf("image of the first container of the pod: got %q, want %q; pod %s: %s", pod.Spec.Containers[0].Image, want, name, s.describe())
			}
		}
		if !s.said("Warning FailedUpdatePodInPlace ", "web-1") {
			t.Errorf("FailedUpdatePodInPlace is told of web-1: got false, want true\n%v\n%+v", s.Recorded,
				s.set().Status.Conditions)
		}
		if got := condition(s.set(), failedUpdate); !strings.Contains(got, "pod web-1 ") {
			t.Errorf("condition about failed updates: got %q, want it to contain %q\n%v\n%+v", got, "pod web-1 ", s.Recorded,
				s.set().Status.Conditions)
		}
		s.Edit(func(set *appsv1beta1.StatefulSet) {
			hostNetwork("nginx:3")(set) // which web-0 could have in place
			set.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = appsv1beta1.ReCreateStatefulSetPodUpdatePolicy
		})
		s.ActFor(time.Minute)
		for name, uid := range uids {
			if pod := s.Pod(name); string(pod.UID) == uid {
				t.Errorf("UID of the pod: got %q, want another value; pod %s: %s", string(pod.UID), name, s.describe())
			} else if pod.Spec.Containers[0].Image != "nginx:3" {
				t.Errorf("image of the first container of the pod: got %q, want %q; pod %s: %s", pod.Spec.Containers[0].Image, "nginx:3", name, s.describe())
			}
		}
		if got := len(s.set().Status.Conditions); got > 0 {
			t.Errorf("conditions: got %d, want none\n%+v", got, s.set().Status.Conditions)
		}
	}
}

// TestADisruptionBudgetIsObeyed shows ASTS-166: what PodUnavailableBudget refuses is an event and an error of
// the pass, and done when it is allowed.
func TestADisruptionBudgetIsObeyed(t *testing.T) {
	recreate := func(set *appsv1beta1.StatefulSet) {
		set.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = appsv1beta1.ReCreateStatefulSetPodUpdatePolicy
	}
	deletion := func(r *simulation.Request) bool { return r.Verb == "delete" && r.Key.Kind == "Pod" }
	change := func(r *simulation.Request) bool {
		return r.Verb == "patch" && r.Key.Kind == "Pod" && strings.Contains(string(r.Body), "nginx:2")
	}
	for name, tt := range map[string]struct {
		option func(*appsv1beta1.StatefulSet)
		change func(*appsv1beta1.StatefulSet)
		denied func(*simulation.Request) bool
		event  string
	}{
		"an update in place":       {inPlace, image("nginx:2"), change, "Warning FailedUpdatePodInPlace "},
		"an update by recreation":  {recreate, image("nginx:2"), deletion, "Warning FailedDelete "},
		"scaling in":               {inPlace, scaled(1), deletion, "Warning FailedDelete "},
		"a pod that is specified ": {inPlace, nil, deletion, "Warning FailedDelete "},
	} {
		t.Run(name, func(t *testing.T) {
			s := simulate(1, makeSet(2, tt.option), statefulset.Features{})
			s.ActFor(time.Minute)
			uid := s.Pod("web-1").UID
			denied := s.Deny(tt.denied)
			if tt.change != nil {
				s.Edit(tt.change)
			} else {
				s.Change(podKey("web-1"), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "" })
			}
			s.Events(100)
			for len(*denied) == 0 {
				s.Pass(time.Second)
				s.Queue.Add()
				s.Queue.Take()
				if _, err := s.Reconcile(); len(*denied) > 0 && (err == nil || !strings.Contains(err.Error(), "a policy says no")) {
					t.Errorf("the pass ends with %v, want what the policy says", err)
				}
			}
			if !s.said(tt.event, "web-1", "a policy says no") {
				t.Errorf("what the policy says of web-1 is told: got false, want true\n%q", s.Recorded)
			}
			s.Queue.Add()
			s.ActFor(10 * time.Minute)
			if pod := s.Pod("web-1"); len(*denied) < 3 {
				t.Errorf("number denied: got %d, want at least 3; %d attempts: %s", len(*denied), len(*denied), s.describe())
			} else if pod == nil {
				t.Errorf(`pod web-1: got nil, want a value; %d attempts: %s`, len(*denied), s.describe())
			} else if pod.UID != uid {
				t.Errorf("UID of the pod: got %q, want %q; %d attempts: %s", pod.UID, uid, len(*denied), s.describe())
			} else if pod.Spec.Containers[0].Image != "nginx:1" {
				t.Errorf("image of the first container of the pod: got %q, want %q; %d attempts: %s", pod.Spec.Containers[0].Image, "nginx:1", len(*denied),
					s.describe())
			}
			s.Answer = nil
			s.ActFor(10 * time.Minute)
			if is := s.set(); is.Status.UpdatedAvailableReplicas != *is.Spec.Replicas || int32(len(s.AllPods())) != *is.Spec.Replicas ||
				len(is.Status.Conditions) > 0 || tt.change == nil && s.Pod("web-1").UID == uid {
				t.Errorf("want all pods updated and available, no conditions, another web-1: %s", s.describe())
			}
		})
	}
}

// TestAWebhookThatIsDownAfterARefusalIsNotAskedAllTheTime: a policy refused an update in place, and then its
// webhook did not answer. The pods behind the one that tries again have no time of their own, so that the
// back-off alone says when it does (IPU-184 (part)).
func TestAWebhookThatIsDownAfterARefusalIsNotAskedAllTheTime(t *testing.T) {
	two := intstr.FromInt32(2)
	s := simulate(1, makeSet(4, inPlace, inParallel, func(set *appsv1beta1.StatefulSet) {
		set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = &two
	}), statefulset.Features{})
	s.ActFor(time.Minute)
	attempts, down := 0, false
	s.Answer = func(r *simulation.Request) error {
		if r.Verb != "patch" || r.Key.Kind != "Pod" || r.Subresource != "" {
			return nil
		}
		if attempts++; down {
			return apierrors.NewInternalError(errors.New("failed calling webhook"))
		}
		return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, errors.New("a policy says no"))
	}
	s.Edit(image("nginx:2"))
	s.ActFor(time.Second)
	down, attempts = true, 0
	s.ActFor(20 * time.Second)
	if attempts < 3 {
		t.Errorf("attempts: got %d, want at least 3", attempts)
	}
	if attempts > 40 {
		t.Errorf("attempts: got %d, want at most 40", attempts)
	}
}

// TestAPodThatFailsEachTimeIsMadeAnewLessAndLessOften shows ASTS-140 (part): a node that rejects a pod, or
// evicts it, each time. Another spec begins anew.
func TestAPodThatFailsEachTimeIsMadeAnewLessAndLessOften(t *testing.T) {
	s := simulate(1, makeSet(1), statefulset.Features{})
	s.Others = func() bool {
		pod := s.Pod("web-0")
		if pod == nil || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed {
			return false
		}
		s.Node.Fail("web-0")
		return true
	}
	made := func() (n int) {
		for range 600 {
			s.Pass(time.Second)
			s.ActFor(time.Millisecond)
		}
		for _, w := range s.Writes {
			if w.Verb == "create" && w.Key == podKey("web-0") {
				n++
			}
		}
		return n
	}
	first := made()
	if first < 5 {
		t.Errorf("first: got %d, want at least 5", first)
	}
	if first > 20 {
		t.Errorf("first: got %d, want at most 20", first)
	}
	s.Edit(image("nginx:2"))
	second := made() - first
	if second < 5 {
		t.Errorf("number made since: got %d, want at least 5", second)
	}
	if second > 20 {
		t.Errorf("number made since: got %d, want at most 20", second)
	}
}

// shownLate shows a pod by its name that no list has shown before.
type shownLate struct {
	client.Client
	pod *corev1.Pod
}

func (l shownLate) Get(ctx context.Context, name client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if pod, ok := into.(*corev1.Pod); ok && name.Name == l.pod.Name {
		l.pod.DeepCopyInto(pod)
		return nil
	}
	return l.Client.Get(ctx, name, into, options...) //nolint:wrapcheck // it stands for the client
}

// TestNobodyIsToldToDeleteThePodThatTheCachesShowAMomentLater shows ASTS-106 (part): caches go on between two
// reads. A pod of the set, or one that it will adopt, is no stranger.
func TestNobodyIsToldToDeleteThePodThatTheCachesShowAMomentLater(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		own    bool
	}{
		"its own":         {func(*corev1.Pod) {}, true},
		"an orphan":       {func(pod *corev1.Pod) { pod.OwnerReferences = nil }, true},
		"an odd orphan":   {func(pod *corev1.Pod) { pod.OwnerReferences, pod.Labels = nil, nil }, false},
		"another set has": {func(pod *corev1.Pod) { pod.OwnerReferences[0].UID = "other" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := simulate(1, makeSet(2, inParallel), statefulset.Features{})
			s.ActFor(time.Minute)
			pod := s.Pod("web-1").DeepCopy()
			tt.change(pod)
			s.Remove(podKey("web-1"))
			s.Events(100)
			api := *s.kube.API
			api.Client = shownLate{api.Client, pod}
			kube := &Kube{podapply.Reader{API: &api, Pods: s.kube.Pods}}
			snapshot, err := kube.Snapshot(t.Context(), s.set(), statefulset.Features{})
			if err != nil {
				t.Fatal(err)
			}
			snapshot.Now = s.Now()
			plan := statefulset.Make(*snapshot)
			if (plan.Refusal == "") != tt.own {
				t.Errorf("no refusal: got %t, want %t\n%v", plan.Refusal == "", tt.own, plan)
			}
			if len(plan.Create) > 0 {
				t.Errorf("created: got %v, want none\n%v", plan.Create, plan)
			}
		})
	}
}

// TestAPodThatCannotBeCreatedHoldsUpNoOther: a policy refuses the pods of two ordinals alone (ASTS-136).
func TestAPodThatCannotBeCreatedHoldsUpNoOther(t *testing.T) {
	set := makeSet(6)
	set.Spec.PodManagementPolicy = appsv1beta1.ParallelPodManagement
	s := simulate(1, set, statefulset.Features{})
	s.Refused = func(w simulation.Write) bool {
		return w.Verb == "create" && (w.Key.Name == "web-0" || w.Key.Name == "web-1")
	}
	s.ActFor(10 * time.Minute)
	if got := len(s.AllPods()); got != 4 {
		t.Errorf("%d pods: %s", got, s.describe())
	}
}
