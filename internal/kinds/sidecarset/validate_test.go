package sidecarset

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// full is a SidecarSet with the spec and its defaults.
func full(t *testing.T, name, spec string) *appsv1beta1.SidecarSet {
	t.Helper()
	set := parse(t, `{metadata: {name: `+name+`}, spec: `+spec+`}`)
	SetDefaults(&set.Spec)
	return set
}

func capable() Environment { return Environment{NativeSidecars: true, NativeInPlace: true} }

// valid is what the cases change.
const valid = `selector: {matchLabels: {a: b}}, containers: [{name: c, image: i}]`

func with(more string) string { return `{` + valid + `, ` + more + `}` }

// container is a set whose one container has more fields.
func container(more string) string {
	return `{selector: {matchLabels: {a: b}}, containers: [{name: c, image: i, ` + more + `}]}`
}

func native(more string) string {
	return `{selector: {matchLabels: {a: b}}, initContainers: [{name: c, image: i, restartPolicy: Always, ` + more + `}]}`
}

// SS-031 to SS-056, SS-070 and defects: each rule with its field and its text.
func TestValidate(t *testing.T) {
	noRevision := capable()
	noRevision.FindRevision = func(*appsv1beta1.SidecarSetInjectRevision) error { return errors.New("none of that name") }
	others := capable()
	canary := full(t, "canary", with(`updateStrategy: {type: NotUpdate}`))
	canary.Annotations = map[string]string{"apps.kruise.io/sidecarset-canary": "true", "apps.kruise.io/sidecarset-base": "base"}
	others.Others = []*appsv1beta1.SidecarSet{canary, full(t, "base",
		`{selector: {matchLabels: {x: z}}, containers: [{name: other, image: i}]}`)}
	for name, test := range map[string]struct {
		name, spec, annotations string
		env                     *Environment
		field, text             string // empty: it is valid
	}{
		"valid":                    {spec: `{` + valid + `}`},
		"SS-031 a dot in the name": {name: "a.b", spec: `{` + valid + `}`, field: "metadata.name", text: "digits and '-'"},
		"SS-031 a long name": {name: strings.Repeat("a", 64), spec: `{` + valid + `}`, field: "metadata.name",
			text: "63"},
		"SS-032 no selector": {spec: `{containers: [{name: c, image: i}]}`, field: "spec.selector",
			text: "no selector defined for SidecarSet"},
		"SS-032 an empty selector": {spec: `{selector: {}, containers: [{name: c, image: i}]}`, field: "spec.selector",
			text: "empty selector is not valid for sidecarset."},
		"SS-032 an invalid selector": {spec: `{selector: {matchLabels: {"a b": c}}, containers: [{name: c, image: i}]}`,
			field: "spec.selector.matchLabels", text: "a b"},
		"SS-032 an empty namespaceSelector": {spec: with(`namespaceSelector: {}`), field: "spec.namespaceSelector",
			text: "empty selector is not valid for sidecarset."},
		"SS-033 no containers": {spec: `{selector: {matchLabels: {a: b}}}`, field: "spec.containers",
			text: "no initContainer or container defined for SidecarSet"},
		"SS-033, SS-D12 init containers alone": {spec: `{selector: {matchLabels: {a: b}}, initContainers: [{name: test, image: i}]}`},
		"volumes that are none":                {spec: with(`volumes: none`), field: "spec.volumes", text: "decoding"},
		"a container that is none":             {spec: container(`ports: none`), field: "spec.containers[0]", text: "decoding"},
		"SS-035 a place": {spec: container(`podInjectPolicy: Beside`), field: "spec.containers[0].podInjectPolicy",
			text: "unsupported pod inject policy"},
		"SS-035 a place of an init container": {spec: native(`podInjectPolicy: Beside`), field: "spec.initContainers[0].podInjectPolicy",
			text: "unsupported pod inject policy"},
		"SS-035 sharing": {spec: container(`shareVolumePolicy: {type: sometimes}`),
			field: "spec.containers[0].shareVolumePolicy.type", text: "unsupported share volume policy"},
		"SS-035 sharing devices": {spec: container(`shareVolumeDevicePolicy: {type: sometimes}`),
			field: "spec.containers[0].shareVolumeDevicePolicy.type", text: "unsupported share volume policy"},
		"SS-035 an upgrade type": {spec: container(`upgradeStrategy: {upgradeType: Warm}`),
			field: "spec.containers[0].upgradeStrategy.upgradeType", text: "HotUpgrade"},
		"SS-036 labels":                      {spec: container(`transferEnv: [{envName: E, sourceContainerNameFrom: {fieldRef: {fieldPath: "metadata.labels['a/b']"}}}]`)},
		"SS-036 annotations are lower-cased": {spec: container(`transferEnv: [{envName: E, sourceContainerNameFrom: {fieldRef: {fieldPath: "metadata.annotations['A/b']"}}}]`)},
		"SS-036, SS-D21 the name of the pod": {spec: container(`transferEnv: [{envName: E, sourceContainerNameFrom: {fieldRef: {fieldPath: metadata.name}}}]`),
			field: "spec.containers[0].transferEnv[0].sourceContainerNameFrom.fieldRef.fieldPath", text: "metadata.labels['<key>']"},
		"SS-036 a key that is none": {spec: container(`transferEnv: [{envName: E, sourceContainerNameFrom: {fieldRef: {fieldPath: "metadata.labels['a b']"}}}]`),
			field: "spec.containers[0].transferEnv[0].sourceContainerNameFrom.fieldRef.fieldPath", text: "name part"},
		"SS-036 another apiVersion": {spec: container(`transferEnv: [{envName: E, sourceContainerNameFrom: {fieldRef: {apiVersion: v2, fieldPath: "metadata.labels['a']"}}}]`),
			field: "spec.containers[0].transferEnv[0].sourceContainerNameFrom.fieldRef.apiVersion", text: "must be v1"},
		"SS-036 of an init container": {spec: native(`transferEnv: [{envName: E, sourceContainerNameFrom: {fieldRef: {fieldPath: metadata.uid}}}]`),
			field: "spec.initContainers[0].transferEnv[0].sourceContainerNameFrom.fieldRef.fieldPath", text: "unsupported"},
		"SS-D08 no fieldRef": {spec: container(`transferEnv: [{envName: E, sourceContainerNameFrom: {}}]`),
			field: "spec.containers[0].transferEnv[0].sourceContainerNameFrom.fieldRef", text: "must be given"},
		"SS-D08 no source": {spec: container(`transferEnv: [{envName: E}]`),
			field: "spec.containers[0].transferEnv[0].sourceContainerName", text: "from where"},
		"SS-D08 nothing": {spec: container(`transferEnv: [{sourceContainerName: c}]`),
			field: "spec.containers[0].transferEnv[0].envName", text: "what to transfer"},
		"SS-037 both": {spec: with(`updateStrategy: {selector: {matchLabels: {x: z}}, partition: "0%"}`),
			field: "spec.updateStrategy", text: "Partition and Selector cannot be used together"},
		"SS-037 0 is not set": {spec: with(`updateStrategy: {selector: {matchLabels: {x: z}}, partition: 0, maxUnavailable: 0}`)},
		"SS-037 a partition": {spec: with(`updateStrategy: {partition: -1}`), field: "spec.updateStrategy.partition",
			text: "non-negative"},
		"SS-037 a percentage": {spec: with(`updateStrategy: {maxUnavailable: "5"}`), field: "spec.updateStrategy.maxUnavailable",
			text: "percentage"},
		"SS-037 an empty one": {spec: with(`updateStrategy: {selector: {}}`), field: "spec.updateStrategy.selector",
			text: "empty selector is not valid"},
		"SS-037 not with NotUpdate": {spec: with(`updateStrategy: {type: NotUpdate, partition: -1, selector: {}}`)},
		"SS-038 two priorities": {spec: with(`updateStrategy: {priorityStrategy: {orderPriority: [{orderedKey: k}], weightPriority: [{weight: 1, matchSelector: {matchLabels: {a: b}}}]}}`),
			field: "spec.updateStrategy.priorityStrategy", text: "only one of weightPriority and orderPriority can be used"},
		"SS-038 a weight": {spec: with(`updateStrategy: {priorityStrategy: {weightPriority: [{weight: 101, matchSelector: {matchLabels: {a: b}}}]}}`),
			field: "spec.updateStrategy.priorityStrategy.weightPriority[0].weight", text: "between 0 and 100"},
		"SS-038 an empty selector": {spec: with(`updateStrategy: {priorityStrategy: {weightPriority: [{weight: 1, matchSelector: {}}]}}`),
			field: "spec.updateStrategy.priorityStrategy.weightPriority[0].matchSelector", text: "empty selector"},
		"SS-038 no key": {spec: with(`updateStrategy: {priorityStrategy: {orderPriority: [{orderedKey: ""}]}}`),
			field: "spec.updateStrategy.priorityStrategy.orderPriority[0].orderedKey", text: "must not be empty"},
		"SS-038 scatter": {spec: with(`updateStrategy: {scatterStrategy: [{key: a, value: b}, {key: a, value: b}]}`),
			field: "spec.updateStrategy.scatterStrategy[1]", text: "Duplicate"},
		"SS-039 a type": {spec: with(`updateStrategy: {type: Sometimes}`), field: "spec.updateStrategy.type", text: "NotUpdate"},
		"SS-040, SS-W01 native sidecars on an old server": {spec: native(`ports: []`), env: &Environment{NativeSidecars: true},
			field: "spec.updateStrategy",
			text:  "The initContainer in-place upgrade is not currently supported."},
		"SS-040 not updated": {spec: native(`ports: []`)[:len(native(`ports: []`))-1] +
			`, updateStrategy: {type: NotUpdate}}`, env: &Environment{NativeSidecars: true}},
		"SS-W01 native sidecars": {spec: native(`ports: []`)},
		"SS-257 an older server": {spec: native(`ports: []`), env: &Environment{NativeInPlace: true},
			field: "spec.initContainers[0].restartPolicy", text: "no native sidecars"},
		"SS-041 a policy alone": {spec: with(`injectionStrategy: {revision: {policy: Partial}}`),
			field: "spec.injectionStrategy.revision", text: "revisionName and customVersion cannot be empty simultaneously"},
		"SS-042 a revision that does not exist": {spec: with(`injectionStrategy: {revision: {revisionName: r}}`), env: &noRevision,
			field: "spec.injectionStrategy.revision", text: "Cannot find specific ControllerRevision, err: none"},
		"SS-D22 its own version": {spec: with(`customVersion: v, injectionStrategy: {revision: {customVersion: v}}`),
			env: &noRevision},
		"SS-043 a policy": {spec: with(`injectionStrategy: {revision: {revisionName: r, policy: Rarely}}`),
			field: "spec.injectionStrategy.revision", text: "Invalid policy Rarely, supported: [Always, Partial]"},
		"SS-044 no annotations": {spec: with(`patchPodMetadata: [{}]`), field: "spec.patchPodMetadata[0].annotations",
			text: "no annotations defined for SidecarSet"},
		"SS-044 a key": {spec: with(`patchPodMetadata: [{annotations: {"a b": c}}]`),
			field: "spec.patchPodMetadata[0].annotations", text: "name part"},
		"SS-044 twice": {spec: with(`patchPodMetadata: [{annotations: {k: a}}, {annotations: {k: b}}]`),
			field: "spec.patchPodMetadata[1].annotations[k]", text: "patch annotation[k] already exist"},
		"SS-045 a policy": {spec: with(`patchPodMetadata: [{annotations: {k: a}, patchPolicy: Guess}]`),
			field: "spec.patchPodMetadata[0].patchPolicy", text: "MergePatchJson"},
		"SS-045 no object": {spec: with(`patchPodMetadata: [{annotations: {k: "[1]"}, patchPolicy: MergePatchJson}]`),
			field: "spec.patchPodMetadata[0].annotations[k]", text: "JSON object"},
		"SS-046 resources too": {spec: container(`resources: {limits: {cpu: 1}}, resourcesPolicy: {targetContainersMode: sum, resourcesExpr: {}}`), field: "spec.containers[0].resourcesPolicy",
			text: "resourcesPolicy and resources cannot be configured together"},
		"SS-047 an init container": {spec: `{selector: {matchLabels: {a: b}}, initContainers: [{name: c, image: i, resourcesPolicy: {targetContainersMode: sum, targetContainersNameRegex: a, resourcesExpr: {limits: {cpu: "1"}}}}]}`,
			field: "spec.initContainers[0].resourcesPolicy", text: "resourcesPolicy is only supported for containers with RestartPolicy Always"},
		"SS-047 a native sidecar": {spec: native(`resourcesPolicy: {targetContainersMode: max, targetContainersNameRegex: a, resourcesExpr: {requests: {memory: "memory*50%"}}}`)},
		"SS-048, SS-049 an empty regex": {spec: container(`resourcesPolicy: {targetContainersMode: sum, targetContainersNameRegex: "", resourcesExpr: {limits: {cpu: "1"}}}`),
			field: "spec.containers[0].resourcesPolicy.targetContainersNameRegex", text: "invalid empty regex"},
		"SS-048 a regex": {spec: container(`resourcesPolicy: {targetContainersMode: sum, targetContainersNameRegex: "(", resourcesExpr: {limits: {cpu: "1"}}}`),
			field: "spec.containers[0].resourcesPolicy.targetContainersNameRegex", text: "invalid regex pattern"},
		"SS-048 nothing": {spec: container(`resourcesPolicy: {targetContainersMode: sum, targetContainersNameRegex: a, resourcesExpr: {}}`),
			field: "spec.containers[0].resourcesPolicy.resourcesExpr", text: "at least one of limits or requests must be configured"},
		"SS-048, SS-140 an expression": {spec: container(`resourcesPolicy: {targetContainersMode: sum, targetContainersNameRegex: a, resourcesExpr: {requests: {cpu: "cpu*cpu"}}}`),
			field: "spec.containers[0].resourcesPolicy.resourcesExpr.requests.cpu", text: "invalid expression: "},
		"SS-140 a sign is not judged": {spec: container(`resourcesPolicy: {targetContainersMode: sum, targetContainersNameRegex: a, resourcesExpr: {limits: {memory: "memory - 100Mi"}}}`)},
		"SS-048 a mode":               {spec: container(`resourcesPolicy: {targetContainersMode: min, targetContainersNameRegex: a, resourcesExpr: {limits: {cpu: "1"}}}`), field: "spec.containers[0].resourcesPolicy.targetContainersMode", text: "sum"},
		"SS-050, SS-D17 no empty image": {spec: container(`upgradeStrategy: {upgradeType: HotUpgrade}`),
			field: "spec.containers[0].upgradeStrategy.hotUpgradeEmptyImage", text: "stands by"},
		"SS-050 the same image": {spec: container(`upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: i}`),
			field: "spec.containers[0].upgradeStrategy.hotUpgradeEmptyImage", text: "must differ"},
		"SS-050 a long name": {spec: `{selector: {matchLabels: {a: b}}, containers: [{name: ` + strings.Repeat("c", 62) +
			`, image: i, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}}]}`,
			field: "spec.containers[0].name", text: "61"},
		"SS-050 a name that is taken": {spec: `{selector: {matchLabels: {a: b}}, containers: [{name: c, image: i, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}}, {name: c-2, image: i}]}`,
			field: "spec.containers[0].name", text: "another container c-2"},
		"SS-050, SS-W01c an init container": {spec: native(`upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}`),
			field: "spec.initContainers[0].upgradeStrategy.upgradeType", text: "native sidecars among them"},
		"SS-051, SS-D14 a version": {spec: with(`customVersion: "a b"`), field: "spec.customVersion", text: "valid label"},
		"SS-D25 a limit":           {spec: with(`revisionHistoryLimit: -1`), field: "spec.revisionHistoryLimit", text: "negative"},
		"SS-070 a canary":          {spec: with(`updateStrategy: {type: NotUpdate}`), annotations: "base", env: &others},
		"SS-070 of itself": {name: "base", spec: with(`updateStrategy: {type: NotUpdate}`), annotations: "base",
			env: &others, field: "metadata", text: "base sidecarSet cannot be itself"},
		"SS-070 of a canary": {spec: with(`updateStrategy: {type: NotUpdate}`), annotations: "canary", env: &others,
			field: "metadata", text: "base sidecarSet cannot be canary"},
		"SS-070 of nothing": {spec: with(`updateStrategy: {type: NotUpdate}`), annotations: "none", env: &others,
			field: "metadata", text: "fetch base sidecarSet[none] failed"},
		"SS-070 that is updated": {spec: `{` + valid + `}`, annotations: "base", env: &others, field: "metadata",
			text: "RollingUpdate is not supported for canary sidecarSet"},
	} {
		t.Run(name, func(t *testing.T) {
			env, setName := capable(), "set"
			if test.env != nil {
				env = *test.env
			}
			if test.name != "" {
				setName = test.name
			}
			set := full(t, setName, test.spec)
			if test.annotations != "" {
				set.Annotations = map[string]string{"apps.kruise.io/sidecarset-canary": "true",
					"apps.kruise.io/sidecarset-base": test.annotations}
				env.Others = env.Others[1:] // the canary itself would conflict
				if test.annotations == "canary" {
					env.Others = others.Others
				}
			}
			verdict := Validate(set, nil, env)
			if test.text == "" {
				if len(verdict.Errors) > 0 {
					t.Errorf("errors of the verdict: got %v, want none\n%v", verdict.Errors, verdict.Errors.ToAggregate())
				}
				return
			}
			for _, err := range verdict.Errors {
				if err.Field == test.field && strings.Contains(err.Error(), test.text) {
					return
				}
			}
			t.Errorf("errors: got %v, want one of %s with %q", verdict.Errors.ToAggregate(), test.field, test.text)
		})
	}
}

// SS-052, SS-055 to SS-057, SS-070, SS-D22: what updates may and may not change, and what was wrong before.
func TestValidateUpdate(t *testing.T) {
	env := capable()
	env.FindRevision = func(*appsv1beta1.SidecarSetInjectRevision) error { return errors.New("it has gone") }
	for name, test := range map[string]struct{ old, updated, text, warning string }{
		"SS-055 a container more": {`{` + valid + `}`,
			`{selector: {matchLabels: {a: b}}, containers: [{name: c, image: i}, {name: d, image: i}]}`, "container d is not found", ""},
		"SS-055 one less, in another order": {`{selector: {matchLabels: {a: b}}, containers: [{name: c, image: i}, {name: d, image: i}, {name: e, image: i}]}`, `{selector: {matchLabels: {a: b}}, containers: [{name: e, image: i}, {name: c, image: i}]}`, "", ""},
		"SS-055 init containers":            {`{` + valid + `}`, with(`initContainers: [{name: d, image: i}]`), "", ""},
		"SS-056 upgradeType": {`{` + valid + `}`,
			container(`upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}`), "container c upgradeType is immutable", ""},
		"SS-057 everything else": {`{` + valid + `}`,
			`{selector: {matchLabels: {other: b}}, namespaceSelector: {matchLabels: {x: z}}, containers: [{name: c, image: j, command: [x]}], volumes: [{name: v, emptyDir: {}}]}`, "", ""},
		"SS-052 what was wrong": {container(`transferEnv: [{envName: E}]`),
			`{selector: {matchLabels: {a: b}}, containers: [{name: c, image: j, transferEnv: [{envName: E}]}]}`, "", "from where"},
		"SS-052 what was wrong in another place": {`{selector: {matchLabels: {a: b}}, containers: [{name: d, image: i}, {name: c, image: i, transferEnv: [{envName: E}]}]}`, container(`transferEnv: [{envName: E}]`), "", "from where"},
		"SS-052 what is wrong newly":             {`{` + valid + `}`, container(`transferEnv: [{envName: E}]`), "from where", ""},
		"SS-052 what the reference finds too": {with(`updateStrategy: {type: RollingUpdate, maxUnavailable: none}`),
			with(`updateStrategy: {type: RollingUpdate, maxUnavailable: none, paused: true}`), "", "maxUnavailable"},
		"SS-D22 a revision that has gone": {with(`injectionStrategy: {revision: {revisionName: r}}`),
			with(`injectionStrategy: {revision: {revisionName: r, policy: Partial}}`), "", ""},
		"SS-042 a revision newly": {with(`injectionStrategy: {revision: {revisionName: r}}`),
			with(`injectionStrategy: {revision: {revisionName: s}}`), "Cannot find specific ControllerRevision", ""},
	} {
		t.Run(name, func(t *testing.T) {
			verdict := Validate(full(t, "set", test.updated), full(t, "set", test.old), env)
			if text := verdict.Errors.ToAggregate(); (text == nil) != (test.text == "") {
				t.Errorf("errors: no text: got %t, want %t\n%v", text == nil, test.text == "", text)
			} else if text != nil && !strings.Contains(text.Error(), test.text) {
				t.Errorf("errors: errors of the verdict: got %q, want it to contain %q", text.Error(), test.text)
			}
			text := strings.Join(verdict.Warnings, "\n")
			if (text == "") != (test.warning == "") {
				t.Errorf(`warnings: no text: got %t, want %t`, text == "", test.warning == "")
			}
			if !strings.Contains(text, test.warning) {
				t.Errorf("warnings: warnings of the verdict: got %q, want it to contain %q", text, test.warning)
			}
		})
	}
	set := full(t, "set", `{`+valid+`}`)
	set.Annotations = map[string]string{"apps.kruise.io/sidecarset-base": "x"}
	if verdict := Validate(set, full(t, "set", `{`+valid+`}`), env); !strings.Contains(verdict.Errors.ToAggregate().Error(),
		"annotations[apps.kruise.io/sidecarset-base] is immutable") {
		t.Errorf("errors: got %v, want that the annotation is immutable", verdict)
	}
}

// SS-052: a label is put on a SidecarSet that would be refused today, for its annotations were taken from the
// white list, its base was deleted, or native sidecars are not upgraded any more. That is accepted with a
// warning; another value of the annotation is not.
func TestALabelOnASidecarSetThatWouldBeRefusedToday(t *testing.T) {
	env := Environment{NativeSidecars: true, WhiteList: func(set *appsv1beta1.SidecarSet) field.ErrorList {
		return CheckWhiteList(set, `{"rules":[]}`, true, false)
	}}
	old := full(t, "canary", `{selector: {matchLabels: {a: b}}, initContainers: [{name: d, image: i, restartPolicy: Always}], containers: [{name: c, image: i}], updateStrategy: {type: RollingUpdate}, patchPodMetadata: [{annotations: {k: v}, patchPolicy: Retain}]}`)
	old.Annotations = map[string]string{"apps.kruise.io/sidecarset-canary": "true", "apps.kruise.io/sidecarset-base": "gone"}
	labelled := old.DeepCopy()
	labelled.Labels = map[string]string{"team": "x"}
	verdict := Validate(labelled, old, env)
	if len(verdict.Errors) > 0 {
		t.Errorf("errors of the verdict: got %v, want none; errors %v, warnings %q", verdict.Errors,
			verdict.Errors, verdict.Warnings)
	}
	if len(verdict.Warnings) != 4 {
		t.Errorf("number of warnings of the verdict: got %d, want 4; errors %v, warnings %q",
			len(verdict.Warnings), verdict.Errors, verdict.Warnings)
	}
	labelled.Spec.PatchPodMetadata[0].Annotations = map[string]string{"k": "other"}
	if verdict := Validate(labelled, old, env); len(verdict.Errors) != 1 {
		t.Errorf("another value: number of errors of the verdict: got %d, want 1\n%v", len(verdict.Errors),
			verdict.Errors)
	} else if verdict.Errors[0].Field != "spec.patchPodMetadata" {
		t.Errorf("another value: field of the first error of the verdict: got %q, want %q\n%v",
			verdict.Errors[0].Field, "spec.patchPodMetadata",
			verdict.Errors)
	}
}

// All that is wrong is told at once, also that another SidecarSet is in the way.
func TestAllMistakesOfASidecarSetAreTold(t *testing.T) {
	env := capable()
	env.Others = []*appsv1beta1.SidecarSet{full(t, "other", `{`+valid+`}`)}
	set := full(t, "set", with(`updateStrategy: {type: Sometimes}, revisionHistoryLimit: -1`))
	if verdict := Validate(set, nil, env); len(verdict.Errors) != 3 {
		t.Errorf("number of errors of the verdict: got %d, want 3\n%v", len(verdict.Errors), verdict.Errors)
	}
	for _, selector := range []string{`{matchExpressions: [{key: a, operator: Like}]}`, `{}`, `null`} {
		set := full(t, "set", `{selector: `+selector+`, namespaceSelector: {matchLabels: {"a b": c}}, containers: [{name: c, image: i}]}`)
		if verdict := Validate(set, set, env); len(verdict.Errors) > 0 {
			t.Errorf("%s: errors of the verdict: got %v, want none", selector, verdict.Errors)
		}
	}
}

// SS-060 to SS-067, SS-D09, SS-D18.
func TestConflicts(t *testing.T) {
	one := func(more string) string { return `{selector: {matchLabels: {a: b}}, ` + more + `}` }
	for name, test := range map[string]struct{ set, other, text string }{
		"SS-063 regular containers": {one(`containers: [{name: c, image: i}]`), one(`containers: [{name: c, image: i}]`),
			"container c already exist in other"},
		"SS-063 init containers": {one(`initContainers: [{name: c, image: i}]`), one(`initContainers: [{name: c, image: i}]`),
			"container c already exist in other"},
		"SS-063, SS-D18 across the lists": {one(`initContainers: [{name: c, image: i}]`), one(`containers: [{name: c, image: i}]`),
			"container c already exist in other"},
		"SS-063 a name of a hot pair": {one(`containers: [{name: c-2, image: i}]`),
			one(`containers: [{name: c, image: i, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}}]`),
			"container c-2 already exist in other"},
		"other names": {one(`containers: [{name: c, image: i}]`), one(`containers: [{name: d, image: i}]`), ""},
		"SS-060 other pods": {`{selector: {matchLabels: {a: c}}, containers: [{name: c, image: i}]}`,
			one(`containers: [{name: c, image: i}]`), ""},
		"SS-060 other namespaces": {one(`namespaceSelector: {matchLabels: {ns: a}}, containers: [{name: c, image: i}]`),
			one(`namespaceSelector: {matchLabels: {ns: b}}, containers: [{name: c, image: i}]`), ""},
		"SS-060 all namespaces": {one(`namespaceSelector: {matchLabels: {ns: a}}, containers: [{name: c, image: i}]`),
			one(`containers: [{name: c, image: i}]`), "container c already exist in other"},
		"SS-064 the same volume": {one(`containers: [{name: c, image: i}], volumes: [{name: v, emptyDir: {}}]`),
			one(`containers: [{name: d, image: i}], volumes: [{name: v}]`), ""},
		"SS-064 another volume": {one(`containers: [{name: c, image: i}], volumes: [{name: v, hostPath: {path: /}}]`),
			one(`containers: [{name: d, image: i}], volumes: [{name: v}]`), "volume v is in conflict with sidecarset other"},
		"SS-065 Overwrite": {one(`containers: [{name: c, image: i}], patchPodMetadata: [{annotations: {k: v}, patchPolicy: Overwrite}]`),
			one(`containers: [{name: d, image: i}], patchPodMetadata: [{annotations: {k: "{}"}, patchPolicy: MergePatchJson}]`), "annotation k is in conflict with sidecarset other"},
		"SS-065 Retain": {one(`containers: [{name: c, image: i}], patchPodMetadata: [{annotations: {k: v}, patchPolicy: Overwrite}]`),
			one(`containers: [{name: d, image: i}], patchPodMetadata: [{annotations: {k: v}}]`), ""},
		"SS-065 both merge": {one(`containers: [{name: c, image: i}], patchPodMetadata: [{annotations: {k: "{}"}, patchPolicy: MergePatchJson}]`), one(`containers: [{name: d, image: i}], patchPodMetadata: [{annotations: {k: "{}"}, patchPolicy: MergePatchJson}]`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			set, other := full(t, "set", test.set), full(t, "other", test.other)
			for i, others := range [][]*appsv1beta1.SidecarSet{{set, other}, {set}} {
				got := ""
				if errs := Conflicts(set, others); len(errs) > 0 {
					got = errs.ToAggregate().Error()
				}
				if i == 1 && got != "" {
					t.Errorf("alone: got the conflict %q, want none", got)
				}
				if want := test.text; i == 0 && ((got == "") != (want == "") || !strings.Contains(got, want)) {
					t.Errorf("beside the other: got the conflict %q, want %q", got, want)
				}
			}
			verdict := Validate(set, set, Environment{Others: []*appsv1beta1.SidecarSet{other},
				NativeSidecars: true})
			if len(verdict.Errors) > 0 {
				t.Errorf("SS-052: errors of the verdict: got %v, want none\n%+v", verdict.Errors, verdict)
			}
			if (len(verdict.Warnings) > 0) != (test.text != "") {
				t.Errorf("SS-052: there are warnings of the verdict: got %t, want %t\n%+v", len(verdict.Warnings) > 0,
					test.text != "", verdict)
			}
		})
	}
	base, canary, second := full(t, "base", `{`+valid+`}`), full(t, "canary", `{`+valid+`}`), full(t, "second", `{`+valid+`}`)
	for _, set := range []*appsv1beta1.SidecarSet{canary, second} {
		set.Annotations = map[string]string{"apps.kruise.io/sidecarset-canary": "true", "apps.kruise.io/sidecarset-base": "base"}
	}
	if errs := Conflicts(base, []*appsv1beta1.SidecarSet{canary}); len(errs) > 0 {
		t.Errorf("SS-066, SS-D09 a base and its canary: %v", errs)
	}
	if errs := Conflicts(canary, []*appsv1beta1.SidecarSet{base}); len(errs) > 0 {
		t.Errorf("SS-066 a canary and its base: %v", errs)
	}
	if errs := Conflicts(canary, []*appsv1beta1.SidecarSet{second}); len(errs) != 1 {
		t.Errorf("SS-067 two canaries: %v", errs)
	}
}

// SS-160 (part), SS-161, SS-162: which annotations a SidecarSet may ask for, by an administrator's list.
func TestWhiteList(t *testing.T) {
	const rules = `{"rules":[{"allowedAnnotationKeyExprs":["^ours/"]},{"selector":{"matchLabels":{"team":"a"}},"allowedAnnotationKeyExprs":["theirs"]}]}`
	for name, test := range map[string]struct {
		spec, labels, list string
		gate               bool
		text               string
	}{
		"nothing is patched":                         {`{}`, `{}`, "", false, ""},
		"nothing is patched, and the list is broken": {`{}`, `{}`, "rules", false, ""},
		"nothing is patched, and no rule applies":    {`{patchPodMetadata: []}`, `{}`, `{"rules":[]}`, false, ""},
		"of several all must be allowed": {`{patchPodMetadata: [{annotations: {ours/a: v}}, {annotations: {ours/b: v, k: v}}]}`,
			`{}`, rules, true, "spec.patchPodMetadata[1].annotations[k]: Forbidden: sidecarSet patch metadata annotation(k) is not allowed"},
		"the union of the rules that apply": {`{patchPodMetadata: [{annotations: {ours/a: v, theirs: v}}]}`,
			`{team: a, more: "1"}`, rules, false, ""},
		"an invalid expression of a rule that does not apply": {`{patchPodMetadata: [{annotations: {ours/k: v}}]}`, `{}`,
			`{"rules":[{"allowedAnnotationKeyExprs":["^ours/"]},{"selector":{"matchLabels":{"team":"a"}},"allowedAnnotationKeyExprs":["("]}]}`, true, "rules[1].allowedAnnotationKeyExprs"},
		"no rule that applies": {`{patchPodMetadata: [{annotations: {theirs: v}}]}`, `{team: b}`,
			`{"rules":[{"selector":{"matchLabels":{"team":"a"}},"allowedAnnotationKeyExprs":["theirs"]}]}`, false, "sidecarSet patch metadata annotation is not allowed"},
		"no list": {`{patchPodMetadata: [{annotations: {k: v}}]}`, `{}`, "", false,
			"SidecarSet patch metadata whitelist not found"},
		"no list, the gate": {`{patchPodMetadata: [{annotations: {k: v}}]}`, `{}`, "", true, ""},
		"allowed":           {`{patchPodMetadata: [{annotations: {ours/k: v}}]}`, `{}`, rules, false, ""},
		"anchored": {`{patchPodMetadata: [{annotations: {not-ours/k: v}}]}`, `{}`, rules, true,
			"sidecarSet patch metadata annotation(not-ours/k) is not allowed"},
		"by label": {`{patchPodMetadata: [{annotations: {x.theirs/k: v, ours/k: v}}]}`, `{team: a}`, rules, false, ""},
		"of another label": {`{patchPodMetadata: [{annotations: {theirs/k: v}}]}`, `{team: b}`, rules, false,
			"(theirs/k) is not allowed"},
		"no rule applies": {`{patchPodMetadata: [{annotations: {k: v}}]}`, `{}`, `{"rules":[]}`, false,
			"sidecarSet patch metadata annotation is not allowed"},
		"no rule applies, gate": {`{patchPodMetadata: [{annotations: {k: v}}]}`, `{}`, `{"rules":[]}`, true, ""},
		"no JSON":               {`{patchPodMetadata: [{annotations: {k: v}}]}`, `{}`, `rules`, true, "reading the whitelist"},
		"an invalid selector": {`{patchPodMetadata: [{annotations: {k: v}}]}`, `{}`,
			`{"rules":[{"selector":{"matchExpressions":[{"key":"a","operator":"Near"}]}}]}`, true, "rules[0].selector"},
		"an invalid expression": {`{patchPodMetadata: [{annotations: {k: v}}]}`, `{}`, `{"rules":[{"allowedAnnotationKeyExprs":["("]}]}`,
			true, "rules[0].allowedAnnotationKeyExprs"},
	} {
		t.Run(name, func(t *testing.T) {
			set := parse(t, `{metadata: {name: s, labels: `+test.labels+`}, spec: `+test.spec+`}`)
			got := CheckWhiteList(set, test.list, test.list != "", test.gate)
			if allowed := test.text == ""; (len(got) == 0) != allowed {
				t.Errorf("refused: got %v, want %q", got, test.text)
			} else if !allowed && !strings.Contains(got.ToAggregate().Error(), test.text) {
				t.Errorf("refused: got %v, want %q in it", got, test.text)
			}
		})
	}
}
