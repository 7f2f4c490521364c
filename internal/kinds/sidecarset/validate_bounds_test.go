package sidecarset

import (
	"strings"
	"testing"
)

// SS-031 to SS-050 (part): what is just allowed, and what is just not.
func TestValidateAtItsBounds(t *testing.T) {
	const policy = `resourcesPolicy: {targetContainersMode: sum, targetContainersNameRegex: ".*", resourcesExpr: {limits: {cpu: cpu}}}`
	priority := func(term string) string {
		return with(`updateStrategy: {type: RollingUpdate, priorityStrategy: {` + term + `}}`)
	}
	weight := func(n string) string {
		return priority(`weightPriority: [{weight: ` + n + `, matchSelector: {matchLabels: {a: b}}}]`)
	}
	hot := func(length int) string {
		return `{selector: {matchLabels: {a: b}}, containers: [{name: ` + strings.Repeat("c", length) +
			`, image: i, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}}]}`
	}
	for name, test := range map[string]struct {
		name, spec string
		field      string // empty: it is valid
	}{
		"the longest name":          {name: strings.Repeat("a", 63), spec: `{` + valid + `}`},
		"no history":                {spec: with(`revisionHistoryLimit: 0`)},
		"a negative history":        {spec: with(`revisionHistoryLimit: -1`), field: "spec.revisionHistoryLimit"},
		"labels and expressions":    {spec: `{selector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: Exists}]}, containers: [{name: c, image: i}]}`},
		"a policy and nothing else": {spec: container(policy)},
		"a policy and limits": {spec: container(policy + `, resources: {limits: {cpu: 1}}`),
			field: "spec.containers[0].resourcesPolicy"},
		"a policy, limits and requests": {spec: container(policy + `, resources: {limits: {cpu: 1}, requests: {cpu: 1}}`),
			field: "spec.containers[0].resourcesPolicy"},
		"no weight":                  {spec: weight("0")},
		"the largest weight":         {spec: weight("100")},
		"a negative weight":          {spec: weight("-1"), field: "spec.updateStrategy.priorityStrategy.weightPriority[0].weight"},
		"a weight that is too large": {spec: weight("101"), field: "spec.updateStrategy.priorityStrategy.weightPriority[0].weight"},
		"an order alone":             {spec: priority(`orderPriority: [{orderedKey: k}]`)},
		"an order and no weights":    {spec: priority(`orderPriority: [{orderedKey: k}], weightPriority: []`)},
		"an order and weights":       {spec: priority(`orderPriority: [{orderedKey: k}], weightPriority: [{weight: 1, matchSelector: {matchLabels: {a: b}}}]`), field: "spec.updateStrategy.priorityStrategy"},
		"scattered by a key":         {spec: with(`updateStrategy: {type: RollingUpdate, scatterStrategy: [{key: k, value: v}]}`)},
		"scattered by none": {spec: with(`updateStrategy: {type: RollingUpdate, scatterStrategy: [{key: "", value: v}]}`),
			field: "spec.updateStrategy.scatterStrategy[0].key"},
		"a partition of all": {spec: with(`updateStrategy: {type: RollingUpdate, partition: "100%"}`)},
		"a partition of a share": {spec: with(`updateStrategy: {type: RollingUpdate, partition: "1.5%"}`),
			field: "spec.updateStrategy.partition"},
		"a negative partition": {spec: with(`updateStrategy: {type: RollingUpdate, partition: -1}`),
			field: "spec.updateStrategy.partition"},
		"no unavailable pods": {spec: with(`updateStrategy: {type: RollingUpdate, maxUnavailable: 0}`)},
		"unavailable pods in words": {spec: with(`updateStrategy: {type: RollingUpdate, maxUnavailable: some}`),
			field: "spec.updateStrategy.maxUnavailable"},
		"the longest name of a hot one":   {spec: hot(maxHotName)},
		"a hot one with a name too long":  {spec: hot(maxHotName + 1), field: "spec.containers[0].name"},
		"a native one is no init one yet": {spec: native(policy)},
	} {
		t.Run(name, func(t *testing.T) {
			setName := test.name
			if setName == "" {
				setName = "s"
			}
			errs := judge(full(t, setName, test.spec), capable()).errs
			switch {
			case test.field == "" && len(errs) > 0:
				t.Errorf("refused: %v", errs)
			case test.field != "" && len(errs) != 1:
				t.Errorf("%d mistakes: %v", len(errs), errs)
			case test.field != "" && errs[0].Field != test.field:
				t.Errorf("%s, want %s: %v", errs[0].Field, test.field, errs)
			}
		})
	}
}
