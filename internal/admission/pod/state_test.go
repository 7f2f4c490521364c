package pod

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// found is what is remembered of every pod.
type found struct {
	state      *appsv1beta1.PersistentPodState
	err        error
	namespaces *[]string
}

// Of implements StateFinder.
func (f found) Of(_ context.Context, _ *corev1.Pod, namespace string) (*appsv1beta1.PersistentPodState, error) {
	*f.namespaces = append(*f.namespaces, namespace)
	return f.state, f.err
}

// PPS-030 (part), PPS-039 (part): the step binds a pod, in a dry run too, once; an error refuses it as one of
// the server's.
func TestTheStepOfPersistentPodStates(t *testing.T) {
	state := &appsv1beta1.PersistentPodState{}
	state.Name = "places"
	state.Spec.RequiredPersistentTopology = &appsv1beta1.NodeTopologyTerm{Keys: []string{"zone"}}
	state.Status.PodStates = map[string]appsv1beta1.PodState{"web-0": {NodeTopologyLabels: map[string]string{"zone": "z1"}}}
	var namespaces []string
	const raw = `{"metadata":{"name":"web-0"},"spec":{}}`
	for name, test := range map[string]struct {
		finder  found
		request Request
		changes int
		err     string
	}{
		"nothing is remembered": {found{nil, nil, &namespaces}, Request{}, 0, ""},
		"a place":               {found{state, nil, &namespaces}, Request{}, 2, ""},
		"a dry run":             {found{state, nil, &namespaces}, Request{DryRun: true}, 2, ""},
		"it comes again":        {found{state, nil, &namespaces}, Request{Again: true}, 0, ""},
		"an error":              {found{nil, errors.New("no answer"), &namespaces}, Request{}, 0, "no answer"},
	} {
		test.request.Raw, test.request.Namespace = []byte(raw), "shop"
		changes, _, err := NewChain().With(States(test.finder)).Mutate(t.Context(), test.request)
		var internal *InternalError
		if len(changes) != test.changes {
			t.Errorf("%s: got changes %v, want %d", name, changes, test.changes)
		}
		if failed := err != nil; failed != (test.err != "") {
			t.Errorf("%s: got error %v, want %q", name, err, test.err)
		} else if failed && (!errors.As(err, &internal) || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("%s: got error %v, want an internal one with %q", name, err, test.err)
		}
	}
	if len(namespaces) != 4 || strings.Join(namespaces, "") != "shopshopshopshop" {
		t.Errorf("states were looked for in %v, want four times in shop", namespaces)
	}
}
