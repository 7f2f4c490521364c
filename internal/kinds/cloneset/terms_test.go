package cloneset

import (
	"fmt"
	"strings"
	"testing"

	"github.com/afloat-project/afloat/internal/engine/inplace"
)

// CS-028 (part): 10,000 terms took a worker, of all CloneSets, seconds in each pass over 2,000 pods.
func TestOrdersOfUpdateHaveFewTerms(t *testing.T) {
	list := func(n int, term string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(term, i)
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	for field, term := range map[string]string{
		`"scatterStrategy":%s`:                     `{"key":"a","value":"v%d"}`,
		`"priorityStrategy":{"weightPriority":%s}`: `{"weight":1,"matchSelector":{"matchLabels":{"a":"v%d"}}}`,
		`"priorityStrategy":{"orderPriority":%s}`:  `{"orderedKey":"k%d"}`,
	} {
		of := func(n int) *Written {
			return written(t, "v1beta1", `{"updateStrategy":{"rollingUpdate":{`+fmt.Sprintf(field, list(n, term))+`}}}`)
		}
		if errs := Validate(of(200), nil, inplace.Options{}); len(errs) > 0 {
			t.Errorf("200: %v", errs)
		}
		if got := summary(Validate(of(201), nil, inplace.Options{})); len(got) != 1 || !strings.HasPrefix(got[0],
			"TooMany spec.updateStrategy.rollingUpdate.") {
			t.Errorf("201: %v", got)
		}
		if errs := Validate(of(201), of(201), inplace.Options{}); len(errs) > 0 {
			t.Errorf("what is stored already: %v", errs)
		}
	}
}
