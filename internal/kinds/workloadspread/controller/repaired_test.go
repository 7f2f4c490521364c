package controller

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

// An earlier release admitted WorkloadSpreads with more paths and longer selectors than are allowed now. Their owner may repair them step
// by step, as with subsets: an update that takes some away is admitted.
func TestAWorkloadSpreadOfAnEarlierReleaseIsRepairedStepByStep(t *testing.T) {
	filter := func(paths, labels int) string {
		var p, l []string
		for i := range paths {
			p = append(p, fmt.Sprintf(`"spec.n%d"`, i))
		}
		for i := range labels {
			l = append(l, fmt.Sprintf(`"l%d":"v"`, i))
		}
		return spreadOf("", `{"targetRef":{"apiVersion":"a.example.com/v1","kind":"Game","name":"d"},"targetFilter":{"selector":{"matchLabels":{`+strings.Join(l, ",")+
			`}},"replicasPathList":[`+strings.Join(p, ",")+`]},"subsets":[{"name":"a"}]}`)
	}
	for name, texts := range map[string][2]string{
		"paths":  {filter(150, 1), filter(120, 1)},
		"labels": {filter(1, 400), filter(1, 300)},
		"none":   {filter(150, 400), filter(150, 400)},
	} {
		w := workloadSpreads(t, &webhooktest.APIServer{Answer: webhooktest.Accepts})
		if r := webhooktest.Review(t, webhooktest.Handler(w.validate), admissionv1.Update, texts[1], texts[0]); !r.Allowed {
			t.Errorf("%s: refused: %s", name, r.Result.Message)
		}
	}
}
