package pod

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/afloat-project/afloat/internal/cputime"
)

// ND-132 (part): a pod has 19,000 variables of the name of the barrier, and asks for an order of its containers. All but one are taken
// out: the webhook, and the API server after it, need no more time for that than the pod is long.
func TestManyBarriersDoNotHoldUpTheWebhook(t *testing.T) {
	took := func(count int) time.Duration {
		variables := strings.Repeat(`{"name":"KRUISE_CONTAINER_BARRIER","value":"x"},`, count)
		raw := `{"metadata":{"name":"p","annotations":{"apps.kruise.io/container-launch-priority":"Ordered"}},"spec":{"containers":[` +
			`{"name":"a","env":[` + strings.TrimSuffix(variables, ",") + `]},{"name":"b"}]}}`
		chain := NewChain(Launch())
		spent := cputime.Start(t)
		changes, _, err := chain.Mutate(t.Context(), Request{Raw: []byte(raw), Namespace: "d"})
		if err != nil || len(changes) == 0 {
			t.Fatalf("%d changes, %v", len(changes), err)
		}
		return spent()
	}
	few, many := took(2_000), took(16_000)
	if limit := 16*few + 100*time.Millisecond; many > limit {
		t.Errorf("16,000 variables take %s where 2,000 take %s: got %.0f times as long for eight times as many, want about 8", many, few,
			float64(many)/float64(few))
	}
}

// ND-132 (part): of several barriers of a container one is left, and what else is in the list stays as it was sent, with
// fields that this project does not know.
func TestVariablesBesideBarriersAreKeptAsTheyWere(t *testing.T) {
	chain := NewChain(Launch())
	request := Request{Namespace: "d", Raw: []byte(`{"metadata":{"name":"p","annotations":` +
		`{"apps.kruise.io/container-launch-priority":"Ordered"}},"spec":{"containers":[{"name":"a","env":[` +
		`{"name":"A","newer":1},{"name":"KRUISE_CONTAINER_BARRIER"},{"name":"B"},{"name":"KRUISE_CONTAINER_BARRIER"},{"name":"C","value":"c"}]},` +
		`{"name":"b"}]}}`)}
	changes, _, err := chain.Mutate(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(changes[0])
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"op":"replace","path":"/spec/containers/0/env","value":[{"name":"A","newer":1},` +
		`{"name":"KRUISE_CONTAINER_BARRIER","valueFrom":{"configMapKeyRef":{"name":"p-barrier","key":"p_0"}}},` +
		`{"name":"B"},{"name":"C","value":"c"}]}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}
