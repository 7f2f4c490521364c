package lifecycle

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
)

// IPU-151: hooked by any handler, fully hooked by all.
func TestHookedByAnyHandlerFullyHookedByAll(t *testing.T) {
	hook := &pub.LifecycleHook{LabelsHandler: map[string]string{"a": "1", "b": ""}, FinalizersHandler: []string{"x/one", "x/two"}}
	tests := map[string]struct {
		hook          *pub.LifecycleHook
		labels        map[string]string
		finalizers    []string
		hooked, fully bool
	}{
		"no hook":                              {nil, map[string]string{"a": "1"}, []string{"x/one"}, false, false},
		"a hook without handlers":              {&pub.LifecycleHook{}, nil, nil, false, true},
		"nothing of it":                        {hook, map[string]string{"c": "1"}, []string{"y"}, false, false},
		"one finalizer":                        {hook, nil, []string{"y", "x/two"}, true, false},
		"one label":                            {hook, map[string]string{"a": "1"}, nil, true, false},
		"a label with another value":           {hook, map[string]string{"a": "2"}, nil, false, false},
		"an empty value must be on the pod":    {hook, map[string]string{"b": ""}, nil, true, false},
		"all labels, one finalizer":            {hook, map[string]string{"a": "1", "b": ""}, []string{"x/one"}, true, false},
		"all finalizers, a label missing":      {hook, map[string]string{"a": "1"}, []string{"x/one", "x/two"}, true, false},
		"all finalizers, a label with another": {hook, map[string]string{"a": "1", "b": "2"}, []string{"x/one", "x/two"}, true, false},
		"all, and more": {hook, map[string]string{"a": "1", "b": "", "c": ""}, []string{"x/two", "y", "x/one"}, true,
			true},
		"labels alone, all there": {&pub.LifecycleHook{LabelsHandler: map[string]string{"a": "1"}},
			map[string]string{"a": "1"}, nil, true, true},
		"finalizers alone, all there": {&pub.LifecycleHook{FinalizersHandler: []string{"x"}}, nil, []string{"x"}, true, true},
		"IPU-158 keys with special characters": {&pub.LifecycleHook{LabelsHandler: map[string]string{`a/"b`: `"`}},
			map[string]string{`a/"b`: `"`}, nil, true, true},
		"a finalizer is compared as a whole": {&pub.LifecycleHook{FinalizersHandler: []string{"x"}}, nil, []string{"x/one"}, false,
			false},
		"markPodNotReady alone hooks nothing": {&pub.LifecycleHook{MarkPodNotReady: true}, map[string]string{"a": "1"}, []string{"x"},
			false, true},
		"a pod without labels and finalizers":  {hook, nil, nil, false, false},
		"a label of the hook as an annotation": {&pub.LifecycleHook{LabelsHandler: map[string]string{"note": "1"}}, nil, nil, false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: tt.labels, Finalizers: tt.finalizers,
				Annotations: map[string]string{"note": "1"}}}
			if got := Hooked(tt.hook, pod); got != tt.hooked {
				t.Errorf("the pod is hooked: got %t, want %t", got, tt.hooked)
			}
			if got := FullyHooked(tt.hook, pod); got != tt.fully {
				t.Errorf("the pod is fully hooked: got %t, want %t", got, tt.fully)
			}
		})
	}
}

// IPU-150: the state and its time change in one patch.
func TestEnter(t *testing.T) {
	patch := &podpatch.Patch{}
	Enter(patch, pub.LifecycleStatePreparingUpdate, time.Date(2026, 5, 1, 12, 0, 0, 0, time.FixedZone("x", 7200)))
	body, err := patch.JSON(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "1"}})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{"annotations":{"lifecycle.apps.kruise.io/timestamp":"2026-05-01T10:00:00Z"},` +
		`"labels":{"lifecycle.apps.kruise.io/state":"PreparingUpdate"},"resourceVersion":"1","uid":"u"}}`
	if diff := cmp.Diff(want, string(body)); diff != "" {
		t.Errorf("the patch (-want +got):\n%s", diff)
	}
}

func TestState(t *testing.T) {
	for _, state := range []pub.LifecycleStateType{"", pub.LifecycleStatePreparingNormal, pub.LifecycleStateNormal,
		pub.LifecycleStateUpdated} {
		pod := &corev1.Pod{}
		if state != "" {
			pod.Labels = map[string]string{pub.LifecycleState: string(state)}
		}
		if got := State(pod); got != state {
			t.Errorf("lifecycle state: got %q, want %q", got, state)
		}
	}
}

// IPU-151 (part): a hook with very many finalizers is read quickly. A CloneSet of 1 MiB with as many
// finalizers on its pods once kept a worker busy for minutes for each pod.
func TestAHookWithManyFinalizersIsRead(t *testing.T) {
	const many = 100_000
	hook, pod, other := &pub.LifecycleHook{}, &corev1.Pod{}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{}}
	for i := range many {
		hook.FinalizersHandler = append(hook.FinalizersHandler, fmt.Sprintf("a/%06d", i))
		pod.Finalizers = append(pod.Finalizers, fmt.Sprintf("a/%06d", i))
		other.Finalizers = append(other.Finalizers, fmt.Sprintf("b/%06d", i))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if !Hooked(hook, pod) {
			t.Error("a pod with all finalizers is not hooked")
		}
		if !FullyHooked(hook, pod) {
			t.Error("a pod with all finalizers is not fully hooked")
		}
		if Hooked(hook, other) {
			t.Error("a pod with other finalizers is hooked")
		}
		if FullyHooked(hook, other) {
			t.Error("a pod with other finalizers is fully hooked")
		}
		Hook(&podpatch.Patch{}, hook, other)
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Error("it takes more than 5 seconds")
	}
}
