package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/simulation"
)

// everything qualifies for updates in place, and all else is on too.
var everything = statefulset.Features{PodIndexLabel: true, DeleteClaims: true, ResizeClaims: true,
	InPlace: inplace.Options{EnvFromMetadata: true, Resize: true}}

// started is a set whose pods run.
func started(t *testing.T, set *appsv1beta1.StatefulSet, features statefulset.Features) *simulated {
	t.Helper()
	s := simulate(1, set, features)
	s.Node.Daemon = true
	s.ActFor(5 * time.Minute)
	if got := s.set().Status.AvailableReplicas; got != *set.Spec.Replicas {
		t.Fatalf("available pods: got %d, want %d: %s", got, *set.Spec.Replicas, s.describe())
	}
	return s
}

// templated gives a set another template.
func templated(metadata, spec string) func(*appsv1beta1.StatefulSet) {
	return func(set *appsv1beta1.StatefulSet) {
		setTemplate(set, fmt.Sprintf(`{"metadata":%s,"spec":%s}`, metadata, spec))
	}
}

// edit changes a pod as a user does.
func (s *simulated) edit(name string, change func(*corev1.Pod)) {
	s.Change(podKey(name), func(o client.Object) { change(o.(*corev1.Pod)) })
}

func grace(seconds int32) func(*appsv1beta1.StatefulSet) {
	return func(set *appsv1beta1.StatefulSet) {
		set.Spec.UpdateStrategy.RollingUpdate.InPlaceUpdateStrategy = &pub.InPlaceUpdateStrategy{GracePeriodSeconds: seconds}
	}
}

// readsMetadata has a container that reads a label and an annotation, and another one.
const readsMetadata = `{"containers":[{"name":"main","image":"nginx:1","env":[
	{"name":"TIER","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['tier']"}}},
	{"name":"NOTE","valueFrom":{"fieldRef":{"fieldPath":"metadata.annotations['note']"}}}]},{"name":"side","image":"agent:1"}]}`

// TestMetadataInPlace shows ASTS-171, a change of metadata alone, and ASTS-172, one that a container reads
// through its environment.
func TestMetadataInPlace(t *testing.T) {
	const before = `{"labels":{"app":"web","tier":"a"},"annotations":{"note":"1","gone":"x"}}`
	for name, tt := range map[string]struct {
		after   string
		env     string // of the container that reads, where it is restarted
		noGate  bool
		restart bool
	}{
		"nothing that is read": {`{"labels":{"app":"web","tier":"a","more":"m"},"annotations":{"note":"1","other":"y"}}`, "TIER=a\nNOTE=1\n",
			false, false},
		"a label is replaced":   {`{"labels":{"app":"web","tier":"b"},"annotations":{"note":"1","gone":"x"}}`, "TIER=b\nNOTE=1\n", false, true},
		"an annotation is":      {`{"labels":{"app":"web","tier":"a"},"annotations":{"note":"2","gone":"x"}}`, "TIER=a\nNOTE=2\n", false, true},
		"an annotation is gone": {`{"labels":{"app":"web","tier":"a"},"annotations":{"gone":"x"}}`, "TIER=a\nNOTE=\n", false, true},
		"and the gate is off":   {`{"labels":{"app":"web","tier":"b"},"annotations":{"note":"1","gone":"x"}}`, "TIER=a\nNOTE=1\n", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			features := everything
			features.InPlace.EnvFromMetadata = !tt.noGate
			s := started(t, makeSet(1, inPlace, templated(before, readsMetadata)), features)
			s.edit("web-0", func(pod *corev1.Pod) { pod.Labels["mine"], pod.Annotations["mine"] = "1", "1" })
			old := s.Pod("web-0")
			s.Edit(templated(tt.after, readsMetadata))
			s.ActFor(5 * time.Minute)
			pod := s.Pod("web-0")
			var want struct{ Labels, Annotations map[string]string }
			if err := json.Unmarshal([]byte(tt.after), &want); err != nil {
				t.Fatal(err)
			}
			want.Labels["mine"], want.Annotations["mine"] = "1", "1"
			for key, value := range want.Labels {
				if pod.Labels[key] != value {
					t.Errorf("label %s is %q", key, pod.Labels[key])
				}
			}
			for _, key := range []string{"mine", "note", "gone", "other"} {
				if pod.Annotations[key] != want.Annotations[key] {
					t.Errorf("annotation %s is %q", key, pod.Annotations[key])
				}
			}
			if pod.UID != old.UID {
				t.Errorf("UID of the pod: got %q, want %q\n%s", pod.UID, old.UID, s.describe())
			}
			if got := s.set().Status.UpdatedAvailableReplicas; got != 1 {
				t.Errorf("updated and available replicas: got %d, want 1\n%s", got, s.describe())
			}
			for i, status := range pod.Status.ContainerStatuses {
				if restarted := status.ContainerID != old.Status.ContainerStatuses[i].ContainerID; restarted != (tt.restart && status.Name == "main") {
					t.Errorf("container %s is restarted: %t", status.Name, restarted)
				}
			}
			if got := s.Node.Runs(pod, "main").Env; got != tt.env {
				t.Errorf("it runs with %q", got)
			}
		})
	}
	// What was not there is added, to a pod that had no such label.
	s := started(t, makeSet(1, inPlace, templated(`{"labels":{"app":"web"}}`, readsMetadata)), everything)
	s.Edit(templated(`{"labels":{"app":"web","tier":"b"}}`, readsMetadata))
	s.ActFor(5 * time.Minute)
	if got := s.Node.Runs(s.Pod("web-0"), "main").Env; got != "TIER=b\nNOTE=\n" {
		t.Errorf("a label is added, and it runs with %q", got)
	}
}

// step is a write to a pod, as far as updates in place go.
func step(w simulation.Write, before, after *corev1.Pod) string {
	words := []string{strings.TrimSpace(w.Verb + " " + w.Subresource)}
	for _, condition := range []corev1.PodConditionType{pub.InPlaceUpdateReady, corev1.PodReady} {
		was, is := readiness.Condition(before, condition), readiness.Condition(after, condition)
		if is != nil && (was == nil || was.Status != is.Status) {
			words = append(words, fmt.Sprintf("%s=%s %s", condition, is.Status, is.Reason))
		}
	}
	if before.Labels[pub.ControllerRevisionHash] != after.Labels[pub.ControllerRevisionHash] {
		words = append(words, "revision")
	}
	if is := after.Labels[pub.LifecycleState]; before.Labels[pub.LifecycleState] != is {
		words = append(words, is)
	}
	for _, key := range []string{pub.InPlaceUpdateState, pub.InPlaceUpdateGrace} {
		if _, ok := after.Annotations[key]; ok && before.Annotations[key] != after.Annotations[key] {
			words = append(words, strings.TrimPrefix(key, "apps.kruise.io/inplace-update-"))
		} else if _, had := before.Annotations[key]; had && !ok {
			words = append(words, "no "+strings.TrimPrefix(key, "apps.kruise.io/inplace-update-"))
		}
	}
	for i := range after.Spec.Containers {
		was, is := before.Spec.Containers[i], after.Spec.Containers[i]
		if was.Image != is.Image {
			words = append(words, is.Image)
		}
		if was.Resources.Limits.Cpu().Cmp(*is.Resources.Limits.Cpu()) != 0 {
			words = append(words, "cpu "+is.Resources.Limits.Cpu().String())
		}
	}
	return strings.Join(words, ", ")
}

// stepsOf are the writes to a pod from now on.
func (s *simulated) stepsOf(name string) *[]string {
	var steps []string
	s.BeforeWrite = func(w simulation.Write, before, after client.Object) {
		now, is := after.(*corev1.Pod)
		if was, had := before.(*corev1.Pod); is && had && w.Key == podKey(name) {
			steps = append(steps, step(w, was, now))
		}
	}
	return &steps
}

// TestStepsOfAnUpdate shows what is written to a pod, in which order: ASTS-173 (part), ASTS-174,
// ASTS-175 (part), and ASTS-180, with TestWhatQualifies, and TestResizeDependsOnTheResourcesOfTheAPIServer
// of the manager.
func TestStepsOfAnUpdate(t *testing.T) {
	const hold, back = "patch status, InPlaceUpdateReady=False StartInPlaceUpdate, Ready=False ReadinessGatesNotReady",
		"patch status, InPlaceUpdateReady=True , Normal"
	sized := func(image, cpu, policy string) func(*appsv1beta1.StatefulSet) {
		return templated(`{"labels":{"app":"web"}}`, fmt.Sprintf(`{"containers":[{"name":"nginx","image":%q,
			"resources":{"limits":{"cpu":%q}},"resizePolicy":[{"resourceName":"cpu","restartPolicy":%q}]}]}`, image, cpu, policy))
	}
	stateless := func(pod *corev1.Pod) { delete(pod.Labels, pub.LifecycleState) }
	ungated := func(pod *corev1.Pod) {
		pod.Spec.ReadinessGates = nil
		pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions,
			func(c corev1.PodCondition) bool { return c.Type == pub.InPlaceUpdateReady })
	}
	for name, tt := range map[string]struct {
		before, after func(*appsv1beta1.StatefulSet)
		edit          func(*corev1.Pod)
		want          []string
	}{
		"an image": {image("nginx:1"), image("nginx:2"), nil,
			[]string{hold, "patch, revision, Updating, state, nginx:2", back}},
		"a pod without a state": {image("nginx:1"), image("nginx:2"), stateless,
			[]string{hold, "patch, revision, Updating, state, nginx:2", back}},
		"a pod without the gate": {image("nginx:1"), image("nginx:2"), ungated,
			[]string{"patch, revision, Updating, state, nginx:2", "patch, Normal"}},
		"after a grace period": {image("nginx:1"), func(set *appsv1beta1.StatefulSet) { grace(30)(set); image("nginx:2")(set) }, nil,
			[]string{hold, "patch, revision, Updating, state, grace", "patch, state, no grace, nginx:2", back}},
		"a label": {image("nginx:1"), templated(`{"labels":{"app":"web","a":"b"}}`, `{"containers":[{"name":"nginx","image":"nginx:1"}]}`), nil,
			[]string{"patch, revision, Updating, state", "patch, Normal"}},
		"an annotation": {image("nginx:1"), templated(`{"labels":{"app":"web"},"annotations":{"a":"b"}}`,
			`{"containers":[{"name":"nginx","image":"nginx:1"}]}`), nil, []string{"patch, revision, state"}},
		"an image of a container that is excepted": {image("nginx:1"), templated(`{"labels":{"app":"web"},"annotations":{
			"apps.kruise.io/inplace-update-keep-ready":"nginx"}}`, `{"containers":[{"name":"nginx","image":"nginx:2"}]}`), nil,
			[]string{"patch, revision, Updating, state, nginx:2", "patch, Normal"}},
		"resources alone": {sized("nginx:1", "1", "NotRequired"), sized("nginx:1", "2", "NotRequired"), nil,
			[]string{"patch resize, cpu 2", "patch, revision, Updating, state", "patch, Normal"}},
		"resources that restart": {sized("nginx:1", "1", "RestartContainer"), sized("nginx:1", "2", "RestartContainer"), nil,
			[]string{hold, "patch resize, cpu 2", "patch, revision, Updating, state", back}},
		"an image and resources": {sized("nginx:1", "1", "NotRequired"), sized("nginx:2", "2", "NotRequired"), nil,
			[]string{hold, "patch resize, cpu 2", "patch, revision, Updating, state, nginx:2", back}},
	} {
		t.Run(name, func(t *testing.T) {
			s := started(t, makeSet(1, inPlace, tt.before), everything)
			if tt.edit != nil {
				s.edit("web-0", tt.edit)
				s.Restart() // whose cache shows it
			}
			steps, begin := s.stepsOf("web-0"), s.Now().Truncate(time.Second) // which the record has
			var written time.Time
			s.AfterWrite = func(w simulation.Write) {
				if pod := s.Pod("web-0"); pod.Spec.Containers[0].Image == "nginx:2" && written.IsZero() {
					written = s.Now()
				}
			}
			s.Edit(tt.after)
			s.ActFor(5 * time.Minute)
			if diff := cmp.Diff(tt.want, *steps); diff != "" {
				t.Errorf("*steps (-want +got):\n%s", diff)
			}
			if name == "after a grace period" && (written.Before(begin.Add(30*time.Second)) || written.After(begin.Add(32*time.Second))) {
				t.Errorf("the image comes after %s, want 30s to 32s", written.Sub(begin))
			}
			if got := s.set().Status.UpdatedAvailableReplicas; got != 1 {
				t.Errorf("updated and available replicas: got %d, want 1\n%s", got, s.describe())
			}
		})
	}
}

// TestARollbackInItsGracePeriod shows the end of ASTS-175, with TestStepsOfAnUpdate and TestGracePeriod:
// content that is not that of the pod's revision is dropped, and the update is decided anew.
func TestARollbackInItsGracePeriod(t *testing.T) {
	s := started(t, makeSet(1, inPlace, grace(30)), everything)
	current := s.Pod("web-0").Labels[pub.ControllerRevisionHash]
	s.Edit(image("nginx:2"))
	for s.Pod("web-0").Annotations[pub.InPlaceUpdateGrace] == "" {
		s.Round()
	}
	s.edit("web-0", func(pod *corev1.Pod) { pod.Labels[pub.ControllerRevisionHash] = current })
	steps := s.stepsOf("web-0")
	s.ActFor(5 * time.Minute)
	want := []string{"patch, no grace", "patch, revision, grace", "patch, state, no grace, nginx:2"}
	if got := slices.DeleteFunc(*steps, func(step string) bool { return strings.HasPrefix(step, "patch status") }); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if status := s.set().Status; status.UpdatedAvailableReplicas != 1 {
		t.Errorf("updated and available replicas: got %d, want 1\n%s", status.UpdatedAvailableReplicas,
			s.describe())
	}
}

// meddle changes a pod just before the manager's next write to it of that kind, which therefore is refused as
// a conflict.
func (s *simulated) meddle(name, subresource, content string) (asked *[]string) {
	asked = &[]string{}
	done := false
	s.Answer = func(r *simulation.Request) error {
		if r.Key != podKey(name) || r.Verb != "patch" {
			return nil
		}
		*asked = append(*asked, r.Subresource)
		if !done && r.Subresource == subresource && strings.Contains(string(r.Body), content) {
			done = true
			s.edit(name, func(pod *corev1.Pod) { pod.Annotations["meddled"] = "yes" })
		}
		return nil
	}
	return asked
}

// pass makes one pass, in which nobody else acts.
func (s *simulated) onePass() {
	s.Events(1 << 20)
	s.Queue.Add()
	s.Manage()
}

// TestAPodIsTakenOutOfServiceInSpiteOfAConflict shows ASTS-173, with what TestStepsOfAnUpdate shows: a pod is
// taken out of service at once in spite of a conflict, as it is then. It shows ASTS-179: it comes back only
// as the version that was judged.
func TestAPodIsTakenOutOfServiceInSpiteOfAConflict(t *testing.T) {
	s := started(t, makeSet(1, inPlace), everything)
	asked := s.meddle("web-0", "status", `InPlaceUpdateReady`)
	s.Edit(image("nginx:2"))
	s.onePass() // the revision is new
	for len(*asked) == 0 {
		s.onePass()
	}
	if !slices.Equal(*asked, []string{"status", "status", ""}) {
		t.Errorf("taken out of service: %q", *asked)
	}
	pod := s.Pod("web-0")
	if pod.Spec.Containers[0].Image != "nginx:2" {
		t.Errorf("image of the first container of the pod: got %q, want %q\n%s", pod.Spec.Containers[0].Image,
			"nginx:2", s.describe())
	}
	if pod.Annotations["meddled"] == "" {
		t.Errorf("annotation meddled of the pod: got nothing, want some text\n%s", s.describe())
	}
	if readiness.Ready(pod) {
		t.Errorf("the pod is ready: got true, want false\n%s", s.describe())
	}
	asked = s.meddle("web-0", "status", `"True"`)
	for len(*asked) == 0 {
		s.environmentStep()
		s.onePass()
	}
	if condition := readiness.Condition(s.Pod("web-0"), pub.InPlaceUpdateReady); !slices.Equal(*asked, []string{"status"}) {
		t.Errorf("brought back: *asked: got %q, want %q", *asked, []string{"status"})
	} else if condition.Status != corev1.ConditionFalse {
		t.Errorf("brought back: status of the condition: got %q, want %q\n%q", condition.Status,
			corev1.ConditionFalse, *asked)
	}
	s.ActFor(time.Minute)
	if !readiness.Ready(s.Pod("web-0")) {
		t.Error("it does not come back: ", s.describe())
	}
}

// TestContainersChangeInTheOrderOfTheirLaunchPriority shows ASTS-177: containers change in the order of their
// launch priority.
func TestContainersChangeInTheOrderOfTheirLaunchPriority(t *testing.T) {
	barrier := func(priority string) string {
		return `{"name":"KRUISE_CONTAINER_BARRIER","valueFrom":{"configMapKeyRef":{"name":"b","key":"p_` + priority + `"}}}`
	}
	reads := `{"name":"TIER","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['tier']"}}}`
	spec := func(tag, cpu string) string {
		return fmt.Sprintf(`{"containers":[{"name":"none","image":"none:%[1]s"},
			{"name":"high","image":"high:1","env":[%[2]s,%[5]s]},{"name":"low","image":"low:%[1]s","env":[%[3]s]},
			{"name":"joins","image":"joins:%[1]s","env":[%[3]s,%[5]s]},
			{"name":"last","image":"last:1","env":[%[4]s],"resources":{"limits":{"cpu":%[6]q}}}]}`,
			tag, barrier("10"), barrier("5"), barrier("1"), reads, cpu)
	}
	s := started(t, makeSet(1, inPlace, templated(`{"labels":{"app":"web","tier":"a"}}`, spec("1", "1"))), everything)
	old := s.Pod("web-0")
	steps := s.stepsOf("web-0")
	s.Edit(templated(`{"labels":{"app":"web","tier":"b"}}`, spec("2", "2")))
	ready := func(pod *corev1.Pod, names ...string) bool {
		for _, status := range pod.Status.ContainerStatuses {
			if slices.Contains(names, status.Name) && !status.Ready {
				return false
			}
		}
		return true
	}
	write := s.BeforeWrite
	s.BeforeWrite = func(w simulation.Write, before, after client.Object) {
		write(w, before, after)
		if was, ok := before.(*corev1.Pod); ok && w.Key == podKey("web-0") {
			first := ready(was, "none", "high", "joins") && s.Node.Runs(was, "high").Env == "KRUISE_CONTAINER_BARRIER=\nTIER=b\n"
			second := ready(was, "low") && s.Node.Runs(was, "low").Image == "low:2"
			switch last := (*steps)[len(*steps)-1]; {
			case strings.Contains(last, "low:2") && !first:
				t.Error("the second batch comes before the first one is up")
			case strings.Contains(last, "cpu 2") && !second:
				t.Error("the third batch comes before the second one is up")
			}
		}
	}
	s.ActFor(10 * time.Minute)
	want := []string{"patch, revision, Updating, state, none:2, joins:2", "patch, state, low:2", "patch resize, cpu 2", "patch, state"}
	got := slices.DeleteFunc(*steps, func(step string) bool { return strings.HasPrefix(step, "patch status") })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if pod := s.Pod("web-0"); pod.UID != old.UID {
		t.Errorf("UID of the pod: got %q, want %q\n%s", pod.UID, old.UID, s.describe())
	}
	if got := s.set().Status.UpdatedAvailableReplicas; got != 1 {
		t.Errorf("updated and available replicas: got %d, want 1\n%s", got, s.describe())
	}
}

// TestEventsOfUpdatesInPlace shows ASTS-181: each names the pod and the revision.
func TestEventsOfUpdatesInPlace(t *testing.T) {
	invalid := func(r *simulation.Request) error {
		if r.Key.Kind == "Pod" && r.Verb == "patch" && strings.Contains(string(r.Body), "nginx:2") {
			return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), r.Key.Name, nil)
		}
		return nil
	}
	refused := func(r *simulation.Request) error {
		if r.Key.Kind == "Pod" && r.Verb == "patch" && strings.Contains(string(r.Body), "nginx:2") {
			return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, fmt.Errorf("a policy"))
		}
		return nil
	}
	insist := func(set *appsv1beta1.StatefulSet) {
		set.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = appsv1beta1.InPlaceOnlyStatefulSetPodUpdatePolicy
	}
	env := templated(`{"labels":{"app":"web"}}`, `{"containers":[{"name":"nginx","image":"nginx:1","env":[{"name":"A"}]}]}`)
	for name, tt := range map[string]struct {
		policy, change func(*appsv1beta1.StatefulSet)
		answer         func(*simulation.Request) error
		want           string
	}{
		"it succeeds":            {inPlace, image("nginx:2"), nil, "Normal SuccessfulUpdatePodInPlace "},
		"it is refused":          {inPlace, image("nginx:2"), refused, "Warning FailedUpdatePodInPlace "},
		"it is invalid":          {inPlace, image("nginx:2"), invalid, "Warning FailedUpdatePodInPlace "},
		"it is not possible":     {insist, env, nil, "Warning FailedUpdatePodInPlace "},
		"it is invalid, for all": {insist, image("nginx:2"), invalid, "Warning FailedUpdatePodInPlace "},
	} {
		t.Run(name, func(t *testing.T) {
			s := started(t, makeSet(1, tt.policy), everything)
			s.Recorded, s.Answer = nil, tt.answer
			s.Edit(tt.change)
			s.ActFor(time.Minute)
			told := 0
			for _, event := range s.Recorded {
				if !strings.Contains(event, "UpdatePodInPlace") {
					continue
				}
				told++
				for _, part := range []string{"pod web-0 ", s.set().Status.UpdateRevision} {
					if !strings.Contains(event, part) {
						t.Errorf("event: got %q, want %q in it", event, part)
					}
				}
				if !strings.HasPrefix(event, tt.want) {
					t.Errorf("event: got %q, want it to begin with %q", event, tt.want)
				}
			}
			if told == 0 {
				t.Errorf("events %q", s.Recorded)
			}
		})
	}
}
