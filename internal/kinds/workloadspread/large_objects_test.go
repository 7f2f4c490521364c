package workloadspread

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/cputime"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

// Whoever may create pods and WorkloadSpreads in one namespace does not make the webhook of pods build a pod that no
// memory holds, since each alternative of the pod's node selector gets each requirement of the subset (WS-092). What
// such a pod in no subset fits into is found without it (WS-142).
func TestAlternativesTimesRequirementsDoNotFillTheWebhook(t *testing.T) {
	const count = 600
	s := workloadspreadtest.Subset("a", nil)
	s.RequiredNodeSelector = &corev1.NodeSelectorTerm{}
	for i := range count {
		s.RequiredNodeSelector.MatchExpressions = append(s.RequiredNodeSelector.MatchExpressions,
			corev1.NodeSelectorRequirement{Key: fmt.Sprint("k", i), Operator: corev1.NodeSelectorOpDoesNotExist})
	}
	pod := func(terms int) []byte {
		return []byte(`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c"}],"affinity":{"nodeAffinity":{` +
			`"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[` +
			strings.TrimSuffix(strings.Repeat(`{},`, terms), ",") + `]}}}}}`)
	}

	if _, err := Inject(pod(30), &s, pub.Placement{Name: "ws", Subset: "a"}); err != nil {
		t.Errorf("30 alternatives: got error %v, want none", err)
	}
	if _, err := Inject(pod(count), &s, pub.Placement{Name: "ws", Subset: "a"}); err == nil ||
		!strings.Contains(err.Error(), `requiredNodeSelector of subset "a"`) {
		t.Errorf("600 alternatives: got error %v, want one that names the field before the pod is built", err)
	}

	spent := cputime.Start(t)
	fits, err := Fits([]appsv1beta1.WorkloadSpreadSubset{s}, pod(20_000), workloadspreadtest.Node("n"))
	if took := spent(); err != nil || len(fits) != 1 || took > 5*time.Second {
		t.Errorf("20,000 alternatives of a pod: got %v and error %v after %s, want that it fits, soon", fits, err, took)
	}
}
