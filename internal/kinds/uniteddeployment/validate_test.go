package uniteddeployment

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
)

const (
	podsOfWeb  = `"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"main","image":"nginx"}]}}`
	deployment = `"deploymentTemplate":{"metadata":{"labels":{"app":"web"}},"spec":{` + podsOfWeb + `}}`
	native     = `"statefulSetTemplate":{"metadata":{"labels":{"app":"web"}},"spec":{"serviceName":"s",` + podsOfWeb + `}}`
	advanced   = `"advancedStatefulSetTemplate":{"metadata":{"labels":{"app":"web"}},"spec":{"serviceName":"s",` + podsOfWeb + `}}`
	cloned4    = `"cloneSetTemplate":{"spec":{` + podsOfWeb + `}}`
)

// united is a UnitedDeployment of a template and other fields of its spec.
func united(t *testing.T, template, rest string) *appsv1beta1.UnitedDeployment {
	t.Helper()
	if rest == "" || rest[0] != ',' {
		rest = `,"selector":{"matchLabels":{"app":"web"}}` + strings.TrimSuffix(","+rest, ",")
	}
	return read(t, `{"metadata":{"name":"web","namespace":"shop"},"spec":{"template":{`+template+`}`+rest+`}}`)
}

func read(t *testing.T, text string) *appsv1beta1.UnitedDeployment {
	t.Helper()
	object := &appsv1beta1.UnitedDeployment{}
	if err := json.Unmarshal([]byte(text), object); err != nil {
		t.Fatalf("reading %s: %v", text, err)
	}
	return object
}

func faults(updated, old *appsv1beta1.UnitedDeployment) (found []string) {
	rules := Rules{Classes: func(string) (*storagev1.StorageClass, error) { return nil, nil },
		StatefulSet: statefulset.Gates{StartOrdinal: true, AutoDeletePVC: true}}
	for _, err := range Validate(updated, old, rules) {
		found = append(found, fmt.Sprintf("%s %s", strings.TrimPrefix(string(err.Type), "FieldValue"), err.Field))
	}
	slices.Sort(found)
	return found
}

func subsets(items string) string { return `"replicas":10,"topology":{"subsets":[` + items + `]}` }

// in is a template with a change.
func in(template, old, changed string) string { return strings.Replace(template, old, changed, 1) }

// What is refused on create, and at which field.
func TestWhatIsRefused(t *testing.T) {
	const (
		at      = "spec.topology.subsets"
		ofSet   = "spec.template.statefulSetTemplate.spec."
		ofOurs  = "spec.template.advancedStatefulSetTemplate.spec."
		ofClone = "spec.template.cloneSetTemplate.spec."
		ofDep   = "spec.template.deploymentTemplate.spec."
	)
	for name, test := range map[string]struct {
		template, rest string
		want           []string
	}{
		"nothing, for each kind: Deployment":      {deployment, "", nil},
		"nothing, for each kind: StatefulSet":     {native, "", nil},
		"nothing, for each kind: our StatefulSet": {advanced, "", nil},
		"nothing, for each kind: CloneSet":        {cloned4, "", nil},
		"UD-021 negative replicas":                {deployment, `"replicas":-1`, []string{"Invalid spec.replicas"}},
		"UD-022 no selector":                      {deployment, `,"replicas":1`, []string{"Required spec.selector"}},
		"UD-022 an empty selector":                {deployment, `,"selector":{}`, []string{"Invalid spec.selector"}},
		"UD-022 a malformed selector": {deployment, `,"selector":{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"app","operator":"Near"}]}`,
			[]string{"Invalid spec.selector.matchExpressions[0].operator"}},
		"labels of the controller cannot be selected by": {deployment, `,"selector":{"matchLabels":{"apps.kruise.io/subset-name":"a"}}`,
			[]string{"Forbidden spec.selector", "Invalid " + ofDep + "template.metadata.labels", "Invalid spec.template.deploymentTemplate.metadata.labels"}},
		"UD-022 a long selector": {deployment, `,"selector":{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"x","operator":"NotIn","values":["v"` +
			strings.Repeat(`,"v"`, 198) + `]}]}`, []string{"TooMany spec.selector"}},
		"UD-023 no template":               {"", "", []string{"Required spec.template"}},
		"UD-023 two templates":             {deployment + "," + cloned4, "", []string{"Invalid spec.template"}},
		"an unreadable one":                {`"deploymentTemplate":{"spec":{"minReadySeconds":"x"}}`, "", []string{"Invalid spec.template"}},
		"UD-024 Deployment":                {in(deployment, `"web"`, `"x"`), "", []string{"Invalid spec.template.deploymentTemplate.metadata.labels"}},
		"UD-024 StatefulSet":               {in(native, `"web"`, `"x"`), "", []string{"Invalid spec.template.statefulSetTemplate.metadata.labels"}},
		"UD-024 of our own":                {in(advanced, `"web"`, `"x"`), "", []string{"Invalid spec.template.advancedStatefulSetTemplate.metadata.labels"}},
		"UD-024 no label":                  {`"deploymentTemplate":{"spec":{` + podsOfWeb + `}}`, "", []string{"Invalid spec.template.deploymentTemplate.metadata.labels"}},
		"UD-024 other labels of CloneSets": {`"cloneSetTemplate":{"metadata":{"labels":{"app":"x"}},"spec":{` + podsOfWeb + `}}`, "", nil},
		"UD-024 expressions that labels of CloneSets do not match": {cloned4, `,"selector":{"matchExpressions":[{"key":"app","operator":"Exists"}]}`,
			[]string{"Invalid spec.template.cloneSetTemplate.metadata.labels"}},
		"UD-024 labels of pods, CloneSet":    {in(cloned4, `"web"`, `"x"`), "", []string{"Invalid " + ofClone + "template.metadata.labels"}},
		"UD-024 labels of pods, Deployment":  {in(deployment, `"labels":{"app":"web"}},"spec":{"containers"`, `"labels":{"app":"x"}},"spec":{"containers"`), "", []string{"Invalid " + ofDep + "template.metadata.labels"}},
		"UD-024 labels of pods, StatefulSet": {in(native, `"labels":{"app":"web"}},"spec":{"containers"`, `"labels":{"app":"x"}},"spec":{"containers"`), "", []string{"Invalid " + ofSet + "template.metadata.labels"}},
		"UD-024 labels of pods, our own":     {in(advanced, `"labels":{"app":"web"}},"spec":{"containers"`, `"labels":{"app":"x"}},"spec":{"containers"`), "", []string{"Invalid " + ofOurs + "template.metadata.labels"}},
		"UD-025 Deployment":                  {in(deployment, `"spec":{`, `"spec":{"replicas":3,`), "", []string{"Invalid " + ofDep + "replicas"}},
		"UD-025 StatefulSet":                 {in(native, `"spec":{`, `"spec":{"replicas":0,`), "", []string{"Invalid " + ofSet + "replicas"}},
		"UD-025 of our own":                  {in(advanced, `"spec":{`, `"spec":{"replicas":3,`), "", []string{"Invalid " + ofOurs + "replicas"}},
		"UD-025 CloneSet":                    {in(cloned4, `"spec":{`, `"spec":{"replicas":3,`), "", nil},
		"UD-026 StatefulSet": {in(native, `"spec":{`, `"spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":1}},`), "",
			[]string{"Invalid " + ofSet + "updateStrategy.rollingUpdate.partition"}},
		"UD-026 of our own": {in(advanced, `"spec":{`, `"spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":1}},`), "",
			[]string{"Invalid " + ofOurs + "updateStrategy.rollingUpdate.partition"}},
		"UD-026 without a type, StatefulSet": {in(native, `"spec":{`, `"spec":{"updateStrategy":{"rollingUpdate":{"partition":1}},`), "", nil},
		"UD-026 without a type, our own":     {in(advanced, `"spec":{`, `"spec":{"updateStrategy":{"rollingUpdate":{"partition":1}},`), "", nil},
		"UD-026 CloneSet":                    {in(cloned4, `"spec":{`, `"spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":1}},`), "", nil},
		"UD-027 a StatefulSet's spec": {in(native, `"spec":{`, `"spec":{"podManagementPolicy":"Never","updateStrategy":{"type":"Sometimes","rollingUpdate":{"maxUnavailable":"x"}},"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Burn","whenScaled":"Retain"},"ordinals":{"start":-1},"minReadySeconds":-1,"selector":{"matchLabels":{"other":"one"}},`), "",
			[]string{"Invalid " + ofSet + "minReadySeconds", "Invalid " + ofSet + "ordinals.start",
				"Invalid " + ofSet + "updateStrategy.rollingUpdate.maxUnavailable", "NotSupported " + ofSet + "persistentVolumeClaimRetentionPolicy.whenDeleted",
				"NotSupported " + ofSet + "podManagementPolicy", "NotSupported " + ofSet + "updateStrategy.type"}},
		"UD-027 rollingUpdate of OnDelete": {in(native, `"spec":{`, `"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":{}},`), "",
			[]string{"Invalid " + ofSet + "updateStrategy.rollingUpdate"}},
		"UD-027 pods and claims": {in(in(native, `"containers"`, `"restartPolicy":"Never","activeDeadlineSeconds":5,"containers"`), `"serviceName"`, `"volumeClaimTemplates":[{"metadata":{}}],"serviceName"`), "",
			[]string{"Forbidden " + ofSet + "template.spec.activeDeadlineSeconds", "NotSupported " + ofSet + "template.spec.restartPolicy",
				"Required " + ofSet + "volumeClaimTemplates[0].metadata.name"}},
		"UD-027 no pods": {`"statefulSetTemplate":{"metadata":{"labels":{"app":"web"}},"spec":{}}`, "",
			[]string{"Invalid " + ofSet + "template.metadata.labels", "Required " + ofSet + "template"}},
		"UD-028 Deployment": {in(in(deployment, `"containers"`, `"restartPolicy":"Never","containers"`), `"spec":{`, `"spec":{"strategy":{"type":"Recreate","rollingUpdate":{"maxSurge":0,"maxUnavailable":"0%"}},"progressDeadlineSeconds":5,"minReadySeconds":5,"revisionHistoryLimit":-1,`), "",
			[]string{"Forbidden " + ofDep + "strategy.rollingUpdate", "Invalid " + ofDep + "progressDeadlineSeconds", "Invalid " + ofDep + "revisionHistoryLimit",
				"Invalid " + ofDep + "strategy.rollingUpdate.maxUnavailable", "NotSupported " + ofDep + "template.spec.restartPolicy"}},
		"UD-028 a Deployment without a deadline, which is 600 then": {in(deployment, `"spec":{`, `"spec":{"minReadySeconds":600,`), "", []string{"Required " + ofDep + "progressDeadlineSeconds"}},
		"UD-028 just below it": {in(deployment, `"spec":{`, `"spec":{"minReadySeconds":599,`), "", nil},
		"UD-028 CloneSet": {in(in(cloned4, `"containers"`, `"restartPolicy":"Never","containers"`), `"spec":{`, `"spec":{"updateStrategy":{"type":"Sometimes","rollingUpdate":{"maxSurge":-1}},"minReadySeconds":-1,`), "",
			[]string{"Invalid " + ofClone + "minReadySeconds", "Invalid " + ofClone + "updateStrategy.rollingUpdate.maxSurge", "Invalid " + ofClone + "updateStrategy.type",
				"NotSupported " + ofClone + "template.spec.restartPolicy"}},
		"UD-028 our StatefulSet": {in(in(advanced, `"containers"`, `"restartPolicy":"Never","containers"`), `"spec":{`, `"spec":{"podManagementPolicy":"x","reserveOrdinals":[-1],`), "",
			[]string{"Invalid " + ofOurs + "podManagementPolicy", "Invalid " + ofOurs + "reserveOrdinals[0]", "NotSupported " + ofOurs + "template.spec.restartPolicy"}},
		"UD-029 names": {deployment, subsets(`{"name":""},{"name":"a"},{"name":"a"},{"name":"B"},{"name":"a.b"},{"name":"` + strings.Repeat("x", 64) + `"},{"name":"` + strings.Repeat("x", 63) + `"}`),
			[]string{"Invalid " + at + "[2].name", "Invalid " + at + "[3].name", "Invalid " + at + "[4].name", "Invalid " + at + "[5].name", "Required " + at + "[0].name"}},
		"UD-031 replicas": {deployment, subsets(`{"name":"a","replicas":-1},{"name":"b","replicas":"-1%"},{"name":"c","replicas":"101%"},{"name":"d","replicas":"5"},{"name":"e","replicas":"5.5%"},{"name":"f","replicas":"99999999999%"},{"name":"g","replicas":"0%"},{"name":"h"}`),
			[]string{"Invalid " + at + "[0].replicas", "Invalid " + at + "[1].replicas", "Invalid " + at + "[2].replicas", "Invalid " + at + "[3].replicas",
				"Invalid " + at + "[4].replicas", "Invalid " + at + "[5].replicas"}},
		"UD-031 bounds": {deployment, subsets(`{"name":"a","minReplicas":-1,"maxReplicas":"x"},{"name":"b","minReplicas":"","maxReplicas":-2},{"name":"c","minReplicas":"100%"}`),
			[]string{"Invalid " + at + "[0].maxReplicas", "Invalid " + at + "[0].minReplicas", "Invalid " + at + "[1].maxReplicas", "Invalid " + at + "[1].minReplicas"}},
		"UD-031 a percentage of nothing, UD-035 (part)": {deployment, `"topology":{"subsets":[{"name":"a","replicas":"50%"},{"name":"b","replicas":1}]}`,
			[]string{"Invalid " + at + "[0].replicas"}},
		"UD-032 in one subset":                     {deployment, subsets(`{"name":"a","replicas":1,"minReplicas":1}`), []string{"Invalid " + at}},
		"UD-032 in two subsets":                    {deployment, subsets(`{"name":"a","replicas":1},{"name":"b","maxReplicas":1}`), []string{"Invalid " + at}},
		"UD-033 minima":                            {deployment, subsets(`{"name":"a","minReplicas":3,"maxReplicas":2},{"name":"b","minReplicas":"31%","maxReplicas":3},{"name":"c","minReplicas":"35%","maxReplicas":3},{"name":"d","minReplicas":99}`), []string{"Invalid " + at + "[0].minReplicas", "Invalid " + at + "[2].minReplicas"}},
		"UD-034 replicas are not known":            {deployment, `"topology":{"subsets":[{"name":"a","minReplicas":1}]}`, []string{"Invalid " + at}},
		"UD-034 all are bounded":                   {deployment, subsets(`{"name":"a","maxReplicas":9},{"name":"b","maxReplicas":9}`), []string{"Invalid " + at}},
		"UD-035 too many":                          {deployment, subsets(`{"name":"a","replicas":6},{"name":"b","replicas":5},{"name":"c"}`), []string{"Invalid " + at}},
		"UD-035 as many":                           {deployment, subsets(`{"name":"a","replicas":6},{"name":"b","replicas":"40%"},{"name":"c"}`), nil},
		"UD-035 all give too few":                  {deployment, subsets(`{"name":"a","replicas":6},{"name":"b","replicas":3}`), []string{"Invalid " + at}},
		"UD-035 all give too many":                 {deployment, subsets(`{"name":"a","replicas":2147483647},{"name":"b","replicas":2147483647}`), []string{"Invalid " + at}},
		"UD-035 replicas are not known":            {deployment, `"topology":{"subsets":[{"name":"a","replicas":1},{"name":"b"}]}`, []string{"Invalid " + at}},
		"UD-035 replicas are not known, all given": {deployment, `"topology":{"subsets":[{"name":"a","replicas":1},{"name":"b","replicas":5}]}`, nil},
		"UD-037":             {deployment, `"replicas":5,"topology":{"scheduleStrategy":{"type":"Adaptive"},"subsets":[{"name":"a","replicas":1},{"name":"b"}]}`, []string{"Forbidden " + at + "[0].replicas"}},
		"UD-038 StatefulSet": {native, `"topology":{"scheduleStrategy":{"type":"Adaptive","adaptive":{"reserveUnschedulablePods":true}}}`, []string{"Invalid spec.topology.scheduleStrategy"}},
		"UD-038 of our own":  {advanced, `"topology":{"scheduleStrategy":{"type":"Adaptive","adaptive":{"reserveUnschedulablePods":true}}}`, []string{"Invalid spec.topology.scheduleStrategy"}},
		"UD-038 CloneSet":    {cloned4, `"topology":{"scheduleStrategy":{"type":"Adaptive","adaptive":{"reserveUnschedulablePods":true}}}`, nil},
		"UD-038 Deployment":  {deployment, `"topology":{"scheduleStrategy":{"type":"Adaptive","adaptive":{"reserveUnschedulablePods":true}}}`, nil},
		"UD-039": {deployment, `"topology":{"scheduleStrategy":{"type":"Adaptive","adaptive":{"rescheduleCriticalSeconds":-1,"unschedulableDuration":-1,"unschedulableLastSeconds":-1}}}`,
			[]string{"Invalid spec.topology.scheduleStrategy.adaptive.rescheduleCriticalSeconds", "Invalid spec.topology.scheduleStrategy.adaptive.unschedulableDuration",
				"Invalid spec.topology.scheduleStrategy.adaptive.unschedulableLastSeconds"}},
		"another strategy": {deployment, `"topology":{"scheduleStrategy":{"type":"Wild"}}`, []string{"NotSupported spec.topology.scheduleStrategy.type"}},
		"UD-040": {deployment, `"replicas":1,"topology":{"subsets":[{"name":"a"}]},"updateStrategy":{"type":"Auto","manualUpdate":{"partitions":{"a":-1,"b":1}}}`,
			[]string{"Invalid spec.updateStrategy.manualUpdate.partitions", "Invalid spec.updateStrategy.manualUpdate.partitions", "NotSupported spec.updateStrategy.type"}},
		"UD-040 what is allowed": {deployment, `"replicas":1,"topology":{"subsets":[{"name":"a"}]},"updateStrategy":{"type":"Manual","manualUpdate":{"partitions":{"a":3}}}`, nil},
		"UD-041 (part) no object": {deployment, subsets(`{"name":"a","patch":"x"},{"name":"b","patch":[1]},{"name":"c","patch":null},{"name":"d","patch":{"spec":{"tolerations":[]}}}`),
			[]string{"Invalid " + at + "[0].patch", "Invalid " + at + "[1].patch"}},
		"UD-041 (part) it does not apply": {deployment, subsets(`{"name":"a","patch":{"spec":{"containers":[{"image":"x"}]}}},{"name":"b","patch":{"spec":7}},{"name":"c","patch":{"$patch":"never"}}`),
			[]string{"Invalid " + at + "[0].patch", "Invalid " + at + "[1].patch", "Invalid " + at + "[2].patch"}},
		"UD-042":            {deployment, `"replicas":5,"topology":{"subsets":[]}`, nil},
		"a history below 0": {deployment, `"revisionHistoryLimit":-1`, []string{"Invalid spec.revisionHistoryLimit"}},
		"all at once": {in(deployment, `"spec":{`, `"spec":{"replicas":3,`), `"replicas":-1,"topology":{"subsets":[{"name":"A","replicas":"x"}]},"updateStrategy":{"type":"Auto"}`,
			[]string{"Invalid spec.replicas", "Invalid " + ofDep + "replicas", "Invalid " + at + "[0].name", "Invalid " + at + "[0].replicas", "NotSupported spec.updateStrategy.type"}},
	} {
		t.Run(name, func(t *testing.T) {
			slices.Sort(test.want)
			if diff := cmp.Diff(test.want, faults(united(t, test.template, test.rest), nil)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// UD-020: the name is a DNS subdomain, with room for the hash of a revision, and one word if StatefulSets of
// our own are named after it; an update is not refused for the name.
func TestNames(t *testing.T) {
	for name, want := range map[string][]string{"web": nil, "a.b": nil, "A": {"Invalid metadata.name"}, "a_b": {"Invalid metadata.name"},
		strings.Repeat("x", 242): nil, strings.Repeat("x", 243): {"Invalid metadata.name"}} {
		object := united(t, deployment, "")
		object.Name = name
		if diff := cmp.Diff(want, faults(object, nil)); diff != "" {
			t.Errorf("%s: faults (-want +got):\n%s", name, diff)
		}
		if got := faults(object, object.DeepCopy()); len(got) > 0 {
			t.Errorf("%s, stored: %s", name, got)
		}
	}
	dotted := united(t, advanced, "")
	dotted.Name = "a.b"
	if diff := cmp.Diff([]string{"Invalid spec.template.advancedStatefulSetTemplate"}, faults(dotted, nil)); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	generated := united(t, deployment, "")
	generated.Name, generated.GenerateName = "", strings.Repeat("x", 238)
	if diff := cmp.Diff([]string{"Invalid metadata.generateName"}, faults(generated, nil)); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

// UD-036: three shares of 33 %, 33 % and 34 % are valid whatever is shared.
func TestPercentagesFitWhateverIsShared(t *testing.T) {
	for replicas := range 2000 {
		object := united(t, deployment, fmt.Sprintf(`"replicas":%d,"topology":{"subsets":[{"name":"a","replicas":"33%%"},{"name":"b","replicas":"33%%"},{"name":"c","replicas":"34%%"}]}`, replicas))
		if got := faults(object, nil); len(got) > 0 {
			t.Fatalf("%d: faults: got %q, want none", replicas, got)
		}
	}
	largest := united(t, deployment, `"replicas":2147483647,"topology":{"subsets":[{"name":"a","replicas":"100%"},{"name":"b","replicas":"0%"}]}`)
	if got := faults(largest, nil); len(got) > 0 {
		t.Errorf("faults: got %q, want none", got)
	}
}

// What updates may change (UD-045 (part)).
func TestUpdatesMayNotChangeWhatIsImmutable(t *testing.T) {
	const (
		at    = "spec.topology.subsets"
		nodes = `"nodeSelectorTerm":{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}]}`
		bear  = `"tolerations":[{"key":"k","operator":"Exists"}]`
	)
	claims := `"volumeClaimTemplates":[{"metadata":{"name":"d"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}],`
	for name, test := range map[string]struct {
		before, beforeRest, after, rest string
		want                            []string
	}{
		"UD-046": {deployment, subsets(`{"name":"a",` + nodes + `},{"name":"b",` + bear + `},{"name":"c"}`),
			deployment, subsets(`{"name":"c",` + nodes + `,` + bear + `},{"name":"a"},{"name":"b"}`),
			[]string{"Forbidden " + at + "[0].nodeSelectorTerm", "Forbidden " + at + "[0].tolerations", "Forbidden " + at + "[1].nodeSelectorTerm", "Forbidden " + at + "[2].tolerations"}},
		"UD-046 under another name": {deployment, subsets(`{"name":"a",` + nodes + `}`), deployment, subsets(`{"name":"a2",` + bear + `}`), nil},
		"UD-046 empty is absent":    {deployment, subsets(`{"name":"a","tolerations":[],"nodeSelectorTerm":{}}`), deployment, subsets(`{"name":"a"}`), nil},
		"UD-047": {deployment, "", deployment, `,"selector":{"matchExpressions":[{"key":"app","operator":"In","values":["web"]}]}`,
			[]string{"Forbidden spec.selector"}},
		"UD-048 what may change": {native, "", in(in(native, `"nginx"`, `"redis"`), `"spec":{`, `"spec":{"updateStrategy":{"type":"OnDelete"},"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete"},"minReadySeconds":5,"ordinals":{"start":1},`), "", nil},
		"UD-048 serviceName":     {native, "", in(native, `"s"`, `"t"`), "", []string{"Forbidden spec.template.statefulSetTemplate.spec"}},
		"UD-048 management": {native, "", in(native, `"spec":{`, `"spec":{"podManagementPolicy":"Parallel",`), "",
			[]string{"Forbidden spec.template.statefulSetTemplate.spec"}},
		"UD-048 claims": {in(native, `"spec":{`, `"spec":{`+claims), "", in(native, `"spec":{`, `"spec":{`+in(claims, "1Gi", "2Gi")), "",
			[]string{"Forbidden spec.template.statefulSetTemplate.spec"}},
		"UD-048 claims, completed": {in(native, `"spec":{`, `"spec":{`+claims), "", in(native, `"spec":{`, `"spec":{`+in(claims, `"spec":{`, `"spec":{"volumeMode":"Filesystem",`)), "", nil},
		"UD-048 history": {native, "", in(native, `"spec":{`, `"spec":{"revisionHistoryLimit":1,`), "",
			[]string{"Forbidden spec.template.statefulSetTemplate.spec"}},
		"UD-049 what may change": {advanced, "", in(in(advanced, `"nginx"`, `"redis"`), `"spec":{`, `"spec":{"reserveOrdinals":[1],"lifecycle":{"preDelete":{"finalizersHandler":["x/y"]}},"scaleStrategy":{"maxUnavailable":1},"ordinals":{"start":1},"revisionHistoryLimit":3,"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete","whenScaled":"Retain"},"updateStrategy":{"type":"OnDelete"},`), "", nil},
		"UD-049": {advanced, "", in(in(advanced, `"s"`, `"t"`), `"spec":{`, `"spec":{"podManagementPolicy":"Parallel",`), "",
			[]string{"Forbidden spec.template.advancedStatefulSetTemplate.spec"}},
		"UD-050 CloneSet":   {cloned4, "", in(in(cloned4, `"nginx"`, `"redis"`), `"spec":{`, `"spec":{"minReadySeconds":1,`+claims+`"updateStrategy":{"type":"OnDelete"},`), "", nil},
		"UD-050 Deployment": {deployment, "", in(in(deployment, `"nginx"`, `"redis"`), `"spec":{`, `"spec":{"minReadySeconds":1,"paused":true,"strategy":{"type":"Recreate"},`), "", nil},
		"in place only": {in(cloned4, `"spec":{`, `"spec":{"updateStrategy":{"rollingUpdate":{"podUpdatePolicy":"InPlaceOnly"}},`), "",
			in(in(cloned4, `"name":"main"`, `"name":"other"`), `"spec":{`, `"spec":{"updateStrategy":{"rollingUpdate":{"podUpdatePolicy":"InPlaceOnly"}},`), "",
			[]string{"Forbidden spec.template.cloneSetTemplate.spec"}},
		"UD-051": {native, "", cloned4, "", nil},
		"UD-052": {deployment, subsets(`{"name":"a","replicas":4},{"name":"b"}`), deployment,
			`"replicas":7,"revisionHistoryLimit":2,"topology":{"scheduleStrategy":{"type":"Adaptive"},"subsets":[{"name":"c","patch":{"metadata":{"labels":{"x":"y"}}}},{"name":"a","minReplicas":1,"maxReplicas":3}]},"updateStrategy":{"manualUpdate":{"partitions":{"a":1}}}`, nil},
		"what is stored is not refused again": {in(deployment, `"spec":{`, `"spec":{"replicas":3,`), `"replicas":1,"topology":{"subsets":[{"name":"A"}]}`,
			in(deployment, `"spec":{`, `"spec":{"replicas":3,`), `"replicas":2,"topology":{"subsets":[{"name":"A"},{"name":"b"}]}`, nil},
		"what is stored may be mended": {"", `"replicas":-1`, deployment, `"replicas":2`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			slices.Sort(test.want)
			if diff := cmp.Diff(test.want, faults(united(t, test.after, test.rest), united(t, test.before, test.beforeRest))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// UD-175: messages have numbers, not addresses.
func TestMessagesHaveNumbers(t *testing.T) {
	for rest, want := range map[string]string{
		subsets(`{"name":"a","replicas":6},{"name":"b","replicas":5}`):           "the subsets have 11 replicas together, more than spec.replicas, which is 10",
		subsets(`{"name":"a","replicas":6},{"name":"b","replicas":3}`):           "the subsets have 9 replicas together, fewer than spec.replicas, which is 10",
		subsets(`{"name":"a","minReplicas":"35%","maxReplicas":3},{"name":"b"}`): "is 4 of 10, more than maxReplicas, which is 3",
		`"replicas":-5`: "Invalid value: -5",
	} {
		errs := Validate(united(t, deployment, rest), nil, Rules{})
		if text := fmt.Sprint(errs); len(errs) != 1 {
			t.Errorf("%s: number of errors: got %d, want 1\n%s", rest, len(errs), text)
		} else if !strings.Contains(text, want) {
			t.Errorf("%s: errs: got %q, want it to contain %q", rest, text, want)
		} else if strings.Contains(text, "0xc0") {
			t.Errorf("%s: errs: got %q, want it not to contain %q", rest, text, "0xc0")
		}
	}
}

// Many subsets, large templates and costly patches end in a refusal, soon; a deep patch does no harm.
func TestLargeObjectsAreRefusedSoon(t *testing.T) {
	many := func(n int, subset string) string {
		var items []string
		for i := range n {
			items = append(items, fmt.Sprintf(`{"name":"s%d"%s}`, i, subset))
		}
		return strings.Join(items, ",")
	}
	large := in(deployment, `"containers"`, `"hostname":"`+strings.Repeat("x", 1<<20)+`","containers"`)
	list := func(n int) string {
		return strings.TrimSuffix(strings.Repeat(`{"name":"x"},`, n), ",")
	}
	for name, test := range map[string]struct {
		template, rest, want string
	}{
		"many subsets":               {deployment, subsets(many(1001, "")), "TooMany"},
		"as many as may be":          {deployment, subsets(many(1000, "")), ""},
		"a large template for many":  {large, subsets(many(20, "")), "TooMany"},
		"a large template for a few": {large, subsets(many(3, "")), ""},
		"lists that merge slowly":    {deployment, subsets(`{"name":"a","patch":{"spec":{"volumes":[` + list(5000) + `]}}}`), "Invalid"},
		"a deep patch":               {deployment, subsets(`{"name":"a","patch":` + strings.Repeat(`{"spec":`, 5000) + `1` + strings.Repeat(`}`, 5000) + `}`), ""},
	} {
		got := strings.Join(faults(united(t, test.template, test.rest), nil), " ")
		if (got == "") != (test.want == "") {
			t.Errorf(`%s: got == "": got %t, want %t; %.200s, want %q`, name, got == "", test.want == "", got, test.want)
		}
		if !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, want it to contain %q", name, got, test.want)
		}
	}
}
