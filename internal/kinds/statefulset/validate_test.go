package statefulset

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/inplace"
)

// written reads a valid StatefulSet with members of its spec set, replaced or (null) removed. Members of
// objects are merged.
func written(t *testing.T, version, members string) *Written {
	t.Helper()
	base := document(t, `{"metadata":{"name":"shop"},"spec":{`+plain+`,"selector":{"matchLabels":{"app":"shop"}},"serviceName":"shop",
		"template":{"metadata":{"labels":{"app":"shop"}},"spec":{"containers":[{"name":"a","image":"i:1"}]}}}}`)
	for key, value := range document(t, members) {
		if key == "metadata" {
			base["metadata"] = value
			continue
		}
		base["spec"].(Document)[key] = value
	}
	set := &appsv1beta1.StatefulSet{}
	if err := json.Unmarshal([]byte(mustJSON(t, base)), set); err != nil {
		t.Fatal(err)
	}
	if version == "v1alpha1" {
		return WrittenInV1alpha1(appsv1alpha1.StatefulSetFromV1beta1(set))
	}
	return WrittenInV1beta1(set)
}

// strategy is a rolling update with a member that is other than its default.
func strategy(member string) string {
	key, _, _ := strings.Cut(member, ":")
	members := []string{member}
	for _, m := range []string{`"partition":0`, `"maxUnavailable":1`, `"podUpdatePolicy":"ReCreate"`, `"minReadySeconds":0`} {
		if !strings.HasPrefix(m, key+":") {
			members = append(members, m)
		}
	}
	return `"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{` + strings.Join(members, ",") + `}}`
}

// summary is the type and field of each error.
func summary(errs field.ErrorList) []string {
	lines := []string{}
	for _, err := range errs {
		kind := strings.TrimPrefix(string(err.Type), "FieldValue")
		lines = append(lines, kind+" "+strings.TrimPrefix(err.Field, "metadata.annotations[apps.kruise.io/v1beta1-only-fields]."))
	}
	slices.Sort(lines)
	return lines
}

// unasked fails the test when a storage class is looked up.
func unasked(t *testing.T) Classes {
	return func(name string) (*storagev1.StorageClass, error) {
		t.Errorf("storage class %q was looked up", name)
		return nil, nil
	}
}

const parallel = `"podManagementPolicy":"Parallel"`

func TestValidate(t *testing.T) {
	const in = "spec.updateStrategy.rollingUpdate."
	cases := map[string]struct {
		members string
		want    []string // below spec, or in the annotation for what only v1beta1 has
	}{
		"valid":                  {`{}`, nil},
		"ASTS-031 no policy":     {`{"podManagementPolicy":""}`, []string{"Required spec.podManagementPolicy"}},
		"ASTS-031 other policy":  {`{"podManagementPolicy":"Any"}`, []string{"Invalid spec.podManagementPolicy"}},
		"ASTS-031 Parallel":      {`{` + parallel + `}`, nil},
		"ASTS-032 good ordinals": {`{"reserveOrdinals":[0,5,"7-9","3-3"]}`, nil},
		"ASTS-032 bad ordinals": {`{"reserveOrdinals":[1,-1,"5","a-b","1-2-3","5-2"]}`, []string{"Invalid reserveOrdinals[1]",
			"Invalid reserveOrdinals[2]", "Invalid reserveOrdinals[3]", "Invalid reserveOrdinals[4]", "Invalid reserveOrdinals[5]"}},
		"ASTS-033 long ranges":         {`{"reserveOrdinals":["1-2000000000","5-2147483600"]}`, nil},
		"ASTS-033 ranges beyond int32": {`{"reserveOrdinals":["1-2147483648"]}`, []string{"Invalid reserveOrdinals[0]"}},
		"ASTS-034, ASTS-035 amounts under Parallel": {
			`{` + parallel + `,"scaleStrategy":{"maxUnavailable":"200%"},` + strategy(`"maxUnavailable":"1%"`) + `}`, nil},
		"ASTS-034 nothing": {`{` + parallel + `,"scaleStrategy":{"maxUnavailable":0},` + strategy(`"maxUnavailable":"0%"`) + `}`,
			[]string{"Invalid scaleStrategy.maxUnavailable", "Invalid " + in + "maxUnavailable"}},
		"ASTS-034 no amounts": {`{` + parallel + `,"scaleStrategy":{"maxUnavailable":-1},` + strategy(`"maxUnavailable":"5"`) + `}`,
			[]string{"Invalid scaleStrategy.maxUnavailable", "Invalid " + in + "maxUnavailable"}},
		"ASTS-035 one by one": {`{"scaleStrategy":{"maxUnavailable":2},` + strategy(`"maxUnavailable":"100%"`) + `}`,
			[]string{"Invalid scaleStrategy.maxUnavailable", "Invalid " + in + "maxUnavailable"}},
		"ASTS-035 one":           {`{"scaleStrategy":{"maxUnavailable":1}}`, nil},
		"ASTS-036 no type":       {`{"updateStrategy":{"type":""}}`, []string{"Invalid spec.updateStrategy.type"}},
		"ASTS-036 other type":    {`{"updateStrategy":{"type":"ReCreate"}}`, []string{"Invalid spec.updateStrategy.type"}},
		"ASTS-036 OnDelete":      {`{"updateStrategy":{"type":"OnDelete"}}`, nil},
		"ASTS-036 OnDelete with": {`{"updateStrategy":{"type":"OnDelete","rollingUpdate":{"partition":3}}}`, nil},
		"ASTS-036 OnDelete with what is wrong": {
			`{"updateStrategy":{"type":"OnDelete","rollingUpdate":{"partition":-3,"maxUnavailable":0,"podUpdatePolicy":"Any"}}}`,
			[]string{"Invalid " + in + "maxUnavailable", "Invalid " + in + "partition", "Invalid " + in + "podUpdatePolicy"}},
		"ASTS-037 partition": {`{` + strategy(`"partition":-1`) + `}`, []string{"Invalid " + in + "partition"}},
		"ASTS-037 seconds":   {`{` + strategy(`"minReadySeconds":301`) + `}`, []string{"Invalid " + in + "minReadySeconds"}},
		"ASTS-037 negative":  {`{` + strategy(`"minReadySeconds":-1`) + `}`, []string{"Invalid " + in + "minReadySeconds"}},
		"ASTS-037 most":      {`{` + strategy(`"minReadySeconds":300`) + `}`, nil},
		"ASTS-038":           {`{` + strategy(`"maxUnavailable":null`) + `}`, []string{"Required " + in + "maxUnavailable"}},
		"ASTS-039":           {`{` + strategy(`"podUpdatePolicy":"Any"`) + `}`, []string{"Invalid " + in + "podUpdatePolicy"}},
		"ASTS-039 the readiness gate is not asked for": {`{` + strategy(`"podUpdatePolicy":"InPlaceOnly"`) + `}`, nil},
		"ASTS-040 in order": {`{` + strategy(`"unorderedUpdate":{}`) + `}`, []string{"Required " + in +
			"unorderedUpdate"}},
		"ASTS-040 good": {`{` + parallel + `,` +
			strategy(`"unorderedUpdate":{"priorityStrategy":{"weightPriority":[{"weight":0,"matchSelector":{"matchLabels":{"a":"b"}}},{"weight":100,"matchSelector":{"matchLabels":{"a":"c"}}}]}}`) + `}`, nil},
		"ASTS-040 bad": {`{` + parallel + `,` +
			strategy(`"unorderedUpdate":{"priorityStrategy":{"orderPriority":[{"orderedKey":""}],"weightPriority":[{"weight":101,"matchSelector":{}},{"weight":-1,"matchSelector":{"matchExpressions":[{"key":"a","operator":"Is"}]}}]}}`) + `}`,
			[]string{"Invalid " + in + "unorderedUpdate.priorityStrategy", "Invalid " + in +
				"unorderedUpdate.priorityStrategy.weightPriority[0].weight",
				"Invalid " + in + "unorderedUpdate.priorityStrategy.weightPriority[1].matchSelector.matchExpressions[0].operator",
				"Invalid " + in + "unorderedUpdate.priorityStrategy.weightPriority[1].weight",
				"Required " + in + "unorderedUpdate.priorityStrategy.orderPriority[0].orderedKey",
				"Required " + in + "unorderedUpdate.priorityStrategy.weightPriority[0].matchSelector"}},
		"ASTS-041": {`{"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Keep"}}`,
			[]string{"NotSupported persistentVolumeClaimRetentionPolicy.whenDeleted",
				"NotSupported persistentVolumeClaimRetentionPolicy.whenScaled"}},
		"ASTS-041 good":  {`{"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Delete","whenDeleted":"Retain"}}`, nil},
		"ASTS-042":       {`{"replicas":-1}`, []string{"Invalid spec.replicas"}},
		"ASTS-043 none":  {`{"selector":null}`, []string{"Required spec.selector"}},
		"ASTS-043 empty": {`{"selector":{}}`, []string{"Invalid spec.selector"}},
		"ASTS-043 malformed": {`{"selector":{"matchExpressions":[{"key":"a","operator":"Is"}]}}`,
			[]string{"Invalid spec.selector.matchExpressions[0].operator"}},
		"ASTS-043 a label of ours": {`{"selector":{"matchLabels":{"app":"shop"},
			"matchExpressions":[{"key":"lifecycle.apps.kruise.io/state","operator":"DoesNotExist"}]}}`, []string{"Forbidden spec.selector"}},
		"ASTS-043 does not match": {`{"selector":{"matchLabels":{"app":"x"}}}`, []string{"Invalid spec.template.metadata.labels"}},
		"ASTS-044 pods that end": {`{"template":{"metadata":{"labels":{"app":"shop"}},"spec":{"restartPolicy":"Never","activeDeadlineSeconds":5}}}`,
			[]string{"Forbidden spec.template.spec.activeDeadlineSeconds", "NotSupported spec.template.spec.restartPolicy"}},
		"ASTS-045": {`{"revisionHistoryLimit":-1,"ordinals":{"start":-1},"volumeClaimUpdateStrategy":{"type":"Any"},` +
			strategy(`"inPlaceUpdateStrategy":{"gracePeriodSeconds":-1}`) +
			`,"volumeClaimTemplates":[{"metadata":{"name":"d"}},{"metadata":{"name":"d"}},{}]}`,
			[]string{"Duplicate spec.volumeClaimTemplates[1].metadata.name", "Invalid ordinals.start", "Invalid spec.revisionHistoryLimit",
				"Invalid " + in + "inPlaceUpdateStrategy.gracePeriodSeconds", "NotSupported volumeClaimUpdateStrategy.type",
				"Required spec.volumeClaimTemplates[2].metadata.name"}},
		"ASTS-045 more replicas than ordinals": {`{"replicas":3,"ordinals":{"start":2147483645},"reserveOrdinals":[2147483646]}`,
			[]string{"Invalid spec.replicas"}},
		"ASTS-101 (part) a claim may replace a volume": {
			`{"template":{"metadata":{"labels":{"app":"shop"}},"spec":{"volumes":[{"name":"d"}]}},"volumeClaimTemplates":[{"metadata":{"name":"d"}}]}`, nil},
		"a template that does not fit": {`{"template":{"spec":5}}`, []string{"Invalid spec.template"}},
		"claims that are no list":      {`{"volumeClaimTemplates":{}}`, []string{"Invalid spec.volumeClaimTemplates"}},
	}
	gates := Gates{StartOrdinal: true}
	for name, test := range cases {
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			t.Run(version+" "+name, func(t *testing.T) {
				want := []string{}
				for _, line := range test.want {
					kind, path, _ := strings.Cut(line, " ")
					if version == "v1beta1" && !strings.HasPrefix(path, "spec.") {
						path = "spec." + path
					}
					want = append(want, kind+" "+path)
				}
				slices.Sort(want)
				if diff := cmp.Diff(want, summary(Validate(written(t, version, test.members), nil, gates, unasked(t)))); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				// What is stored does not stop an update.
				scaled := strings.Replace(strings.Replace(test.members, "{", `{"lifecycle":{"preDelete":{}},`, 1), ",}", "}", 1)
				if got := summary(Validate(written(t, version, scaled), written(t, version, test.members), gates,
					unasked(t))); len(got) > 0 {
					t.Errorf("on update: %v", got)
				}
			})
		}
	}
}

// ASTS-030: the name is a DNS label that leaves room for the hash of a revision in a label. It is checked on
// create alone.
func TestTheNameLeavesRoomForTheHash(t *testing.T) {
	for meta, want := range map[string][]string{
		`{"name":"` + strings.Repeat("a", 52) + `"}`: {},
		`{"name":"` + strings.Repeat("a", 53) + `"}`: {"Invalid metadata.name"},
		`{"name":"` + strings.Repeat("a", 64) + `"}`: {"Invalid metadata.name", "Invalid metadata.name"},
		`{"name":"a.b"}`: {"Invalid metadata.name"},
		`{"generateName":"` + strings.Repeat("a", 47) + `"}`: {},
		`{"generateName":"` + strings.Repeat("a", 48) + `"}`: {"Invalid metadata.generateName"},
		`{}`: {},
	} {
		set := written(t, "v1beta1", `{"metadata":`+meta+`}`)
		if diff := cmp.Diff(want, summary(Validate(set, nil, Gates{}, unasked(t)))); diff != "" {
			t.Errorf("%s: errors (-want +got):\n%s", meta, diff)
		}
		if errs := Validate(set, set, Gates{}, unasked(t)); len(errs) > 0 {
			t.Errorf("%s on update: %v", meta, errs)
		}
	}
}

// ASTS-322 (part): who edits the annotation of a v1alpha1 object is told what of it is not understood,
// instead of losing it.
func TestTheAnnotationOfV1alpha1IsChecked(t *testing.T) {
	for _, text := range []string{`{"reserveOrdinal":[1]}`, `{"reserveOrdinals":1}`, `no`} {
		set := &appsv1alpha1.StatefulSet{}
		set.Annotations = map[string]string{"apps.kruise.io/v1beta1-only-fields": text}
		set.Spec.StatefulSetTemplate = written(t, "v1beta1", `{}`).set.Spec.StatefulSetTemplate
		if got := summary(Validate(WrittenInV1alpha1(set), nil, Gates{}, unasked(t))); !slices.Equal(got, []string{"Invalid metadata.annotations[apps.kruise.io/v1beta1-only-fields]"}) {
			t.Errorf("%s: got %q, want %q", text, got, []string{"Invalid metadata.annotations[apps.kruise.io/v1beta1-only-fields]"})
		}
	}
}

// Each pass reads all reserved ordinals, and applies all terms of an order to all pods, while other sets
// wait.
func TestListsAreBounded(t *testing.T) {
	list := func(n int, item string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	for _, test := range []struct {
		most         int
		item, member string
	}{
		{10_000, `7`, `"reserveOrdinals":%s`},
		{200, `{"orderedKey":"k"}`, strategy(`"unorderedUpdate":{"priorityStrategy":{"orderPriority":%s}}`)},
		{200, `{"weight":1,"matchSelector":{"matchLabels":{"a":"v"}}}`,
			strategy(`"unorderedUpdate":{"priorityStrategy":{"weightPriority":%s}}`)},
	} {
		of := func(n int) *Written {
			return written(t, "v1beta1", `{`+parallel+`,`+fmt.Sprintf(test.member, list(n, test.item))+`}`)
		}
		if errs := Validate(of(test.most), nil, Gates{}, unasked(t)); len(errs) > 0 {
			t.Errorf("%d: errors: got %v, want none", test.most, errs)
		}
		if got := summary(Validate(of(test.most+1), nil, Gates{}, unasked(t))); len(got) != 1 {
			t.Errorf("%d: number of results: got %d, want 1\n%v", test.most+1, len(got), got)
		} else if !strings.HasPrefix(got[0], "TooMany spec.") {
			t.Errorf("%d: first result: got %q, want it to begin with %q\n%v", test.most+1, got[0], "TooMany spec.",
				got)
		}
		if errs := Validate(of(test.most+1), of(test.most+1), Gates{}, unasked(t)); len(errs) > 0 {
			t.Errorf("what is stored already: %v", errs)
		}
	}
}

func TestValidateUpdate(t *testing.T) {
	only := strategy(`"podUpdatePolicy":"InPlaceOnly"`)
	template := func(container string) string {
		return `"template":{"metadata":{"labels":{"app":"shop","new":"x"}},"spec":{"containers":[{"name":"a",` + container + `}]}}`
	}
	cpu := func(n string) string { return template(`"image":"i:1","resources":{"requests":{"cpu":"` + n + `"}}`) }
	cases := map[string]struct {
		old, updated string
		gates        Gates
		want         []string
	}{
		"ASTS-050 mutable": {old: `{}`, updated: `{"replicas":3,` + template(`"image":"j","env":[{"name":"E"}]`) +
			`,"updateStrategy":{"type":"OnDelete"},"scaleStrategy":{"maxUnavailable":1},"reserveOrdinals":[1],"ordinals":{"start":2},"lifecycle":{},"revisionHistoryLimit":3,"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete","whenScaled":"Delete"},"volumeClaimTemplates":[{"metadata":{"name":"d"}}],"volumeClaimUpdateStrategy":{"type":"OnPodRollingUpdate"}}`},
		"ASTS-050 selector": {old: `{}`, updated: `{"selector":{"matchExpressions":[{"key":"app","operator":"Exists"}]}}`,
			want: []string{"Forbidden spec"}},
		"ASTS-050 service":                    {old: `{}`, updated: `{"serviceName":"other"}`, want: []string{"Forbidden spec"}},
		"ASTS-050 policy":                     {old: `{}`, updated: `{` + parallel + `}`, want: []string{"Forbidden spec"}},
		"ASTS-050 a default that was missing": {old: `{"podManagementPolicy":null}`, updated: `{}`},
		"ASTS-051 image and metadata":         {old: `{}`, updated: `{` + template(`"image":"j"`) + `,` + only + `}`},
		"ASTS-051 env": {old: `{}`, updated: `{` + template(`"image":"j","env":[{"name":"E"}]`) + `,` + only + `}`,
			want: []string{"Forbidden spec"}},
		"ASTS-051 another container": {old: `{}`,
			updated: `{"template":{"metadata":{"labels":{"app":"shop"}},"spec":{"containers":[{"name":"a","image":"i:1"},{"name":"b","image":"i"}]}},` + only + `}`, want: []string{"Forbidden spec"}},
		"ASTS-052 pull policy": {old: `{` + template(`"image":"i:1","imagePullPolicy":"Always"`) + `}`, updated: `{` +
			template(`"image":"i:1","imagePullPolicy":"Never"`) + `,` + only + `}`, want: []string{"Forbidden spec"}},
		"ASTS-052 init container": {old: `{"template":{"metadata":{"labels":{"app":"shop"}},"spec":{"initContainers":[{"name":"i","image":"i:1"}],"containers":[{"name":"a","image":"i:1"}]}}}`,
			updated: `{"template":{"metadata":{"labels":{"app":"shop"}},"spec":{"initContainers":[{"name":"i","image":"i:2"}],"containers":[{"name":"a","image":"i:1"}]}},` + only + `}`, want: []string{"Forbidden spec"}},
		"ASTS-052 resources": {old: `{` + cpu("1") + `}`, updated: `{` + cpu("2") + `,` + only + `}`,
			want: []string{"Forbidden spec"}},
		"ASTS-052 resources with the gate": {old: `{` + cpu("1") + `}`, updated: `{` + cpu("2") + `,` + only + `}`,
			gates: Gates{InPlace: inplace.Options{Resize: true}}},
		"ASTS-051 OnDelete does not use it": {old: `{}`, updated: `{` + template(`"image":"j","env":[{"name":"E"}]`) + `,` +
			strings.Replace(only, "RollingUpdate", "OnDelete", 1) + `}`},
		"ASTS-056 one more claim template under InPlaceOnly": {old: `{"volumeClaimTemplates":[{"metadata":{"name":"d"}}]}`,
			updated: `{"volumeClaimTemplates":[{"metadata":{"name":"d"}},{"metadata":{"name":"e"}}],` + only + `}`,
			want:    []string{"Forbidden spec.volumeClaimTemplates[1]"}},
		"ASTS-056 one less under InPlaceOnly": {old: `{"volumeClaimTemplates":[{"metadata":{"name":"d"}}]}`,
			updated: `{"volumeClaimTemplates":[],` + only + `}`},
		"ASTS-056 one more under OnDelete": {old: `{}`, updated: `{"volumeClaimTemplates":[{"metadata":{"name":"e"}}],` +
			strings.Replace(only, "RollingUpdate", "OnDelete", 1) + `}`},
		"what is wrong may not get worse": {old: `{"revisionHistoryLimit":-1}`, updated: `{"revisionHistoryLimit":-2}`,
			want: []string{"Invalid spec.revisionHistoryLimit"}},
		"ASTS-056 claims change without a gate": {old: `{"volumeClaimTemplates":[{"metadata":{"name":"d"}}]}`,
			updated: `{"volumeClaimTemplates":[],"volumeClaimUpdateStrategy":{"type":"OnPodRollingUpdate"}}`},
	}
	for name, test := range cases {
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			t.Run(version+" "+name, func(t *testing.T) {
				errs := Validate(written(t, version, test.updated), written(t, version, test.old), test.gates, unasked(t))
				if diff := cmp.Diff(append([]string{}, test.want...), summary(errs)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				for _, err := range errs {
					if strings.Contains(name, "ASTS-050") && !strings.Contains(err.Detail, "'replicas', 'template', 'updateStrategy'") {
						t.Errorf("the message does not list the mutable fields: %s", err.Detail)
					}
					if strings.Contains(name, "env") && !strings.Contains(err.Detail, "spec.containers[0].env") {
						t.Errorf("the message does not name the path: %s", err.Detail)
					}
				}
			})
		}
	}
}

// claims is a set whose claims follow their templates.
func claims(t *testing.T, follow string, templates ...string) *Written {
	t.Helper()
	return written(t, "v1beta1", `{"volumeClaimUpdateStrategy":{"type":"`+follow+`"},"volumeClaimTemplates":[`+strings.Join(templates,
		",")+`]}`)
}

// claim is a claim template with a size, and more in its spec.
func claim(name, size, more string) string {
	return `{"metadata":{"name":"` + name + `"},"spec":{"accessModes":["ReadWriteOnce","ReadOnlyMany"],"resources":{"requests":{"storage":"` + size + `"}}` + more + `}}`
}

func TestChangesOfClaims(t *testing.T) {
	yes, no := true, false
	classes := map[string]*storagev1.StorageClass{"": {ObjectMeta: metav1.ObjectMeta{Name: "standard"}, AllowVolumeExpansion: &yes},
		"grows": {AllowVolumeExpansion: &yes}, "fixed": {AllowVolumeExpansion: &no}, "unset": {}}
	of := func(class string) string { return `,"storageClassName":"` + class + `"` }
	const size = "spec.volumeClaimTemplates[0].spec.resources.requests.storage"
	cases := map[string]struct {
		old, updated []string
		noDefault    bool
		want         []string
	}{
		"ASTS-053 one more": {[]string{claim("a", "1Gi", "")}, []string{claim("a", "1Gi", ""), claim("b", "1Gi", "")}, false,
			[]string{"Forbidden spec.volumeClaimTemplates", "Invalid spec.volumeClaimTemplates[1].metadata.name"}},
		"ASTS-053 one less": {[]string{claim("a", "1Gi", ""), claim("b", "1Gi", "")}, []string{claim("a", "1Gi", "")}, false,
			[]string{"Forbidden spec.volumeClaimTemplates"}},
		"ASTS-053 another name": {[]string{claim("a", "1Gi", "")}, []string{claim("b", "1Gi", "")}, false,
			[]string{"Invalid spec.volumeClaimTemplates[0].metadata.name"}},
		"ASTS-053 another order": {[]string{claim("a", "1Gi", ""), claim("b", "2Gi", "")}, []string{claim("b", "2Gi", ""),
			claim("a", "1Gi", "")}, false, nil},
		"ASTS-053 another class": {[]string{claim("a", "1Gi", of("grows"))}, []string{claim("a", "1Gi", of("fixed"))}, false,
			[]string{"Forbidden spec.volumeClaimTemplates[0].spec.storageClassName"}},
		"ASTS-053 a class is named": {[]string{claim("a", "1Gi", "")}, []string{claim("a", "1Gi", of("fixed"))}, false, nil},
		"ASTS-053 other modes": {[]string{claim("a", "1Gi", "")}, []string{strings.Replace(claim("a", "1Gi", ""),
			`"ReadWriteOnce","ReadOnlyMany"`, `"ReadOnlyMany","ReadWriteOnce"`, 1)}, false, []string{"Forbidden spec.volumeClaimTemplates[0].spec.accessModes"}},
		"ASTS-053 something else": {[]string{claim("a", "1Gi", "")}, []string{claim("a", "1Gi", `,"volumeMode":"Block"`)}, false,
			[]string{"Forbidden spec.volumeClaimTemplates[0].spec"}},
		"ASTS-053 a default": {[]string{claim("a", "1Gi", `,"volumeMode":"Filesystem"`)}, []string{claim("a", "1024Mi", ``)}, false,
			nil},
		"ASTS-053 the limit": {[]string{claim("a", "1Gi", "")}, []string{strings.Replace(claim("a", "1Gi", ""), `"requests"`,
			`"limits":{"storage":"9Gi"},"requests"`, 1)}, false, nil},
		"ASTS-054 grows": {[]string{claim("a", "1Gi", of("grows"))}, []string{claim("a", "2Gi", of("grows"))}, false, nil},
		"ASTS-054 fixed": {[]string{claim("a", "1Gi", of("fixed"))}, []string{claim("a", "2Gi", of("fixed"))}, false,
			[]string{"Forbidden " + size}},
		"ASTS-054 unset": {[]string{claim("a", "1Gi", of("unset"))}, []string{claim("a", "2Gi", of("unset"))}, false,
			[]string{"Forbidden " + size}},
		"ASTS-054 not there": {[]string{claim("a", "1Gi", of("gone"))}, []string{claim("a", "2Gi", of("gone"))}, false,
			[]string{"Invalid spec.volumeClaimTemplates[0].spec.storageClassName"}},
		"ASTS-054 none": {[]string{claim("a", "1Gi", of(""))}, []string{claim("a", "2Gi", of(""))}, false,
			[]string{"Invalid spec.volumeClaimTemplates[0].spec.storageClassName"}},
		"ASTS-054 nobody knows": {[]string{claim("a", "1Gi", of("away"))}, []string{claim("a", "2Gi", of("away"))}, false,
			[]string{"InternalError spec.volumeClaimTemplates[0].spec.storageClassName"}},
		"ASTS-054 the default": {[]string{claim("a", "1Gi", "")}, []string{claim("a", "2Gi", "")}, false, nil},
		"ASTS-054 no default":  {[]string{claim("a", "1Gi", "")}, []string{claim("a", "2Gi", "")}, true, nil},
		"ASTS-055 smaller":     {[]string{claim("a", "2Gi", "")}, []string{claim("a", "1Gi", "")}, false, nil},
		"ASTS-055 smaller but fixed": {[]string{claim("a", "2Gi", of("fixed"))}, []string{claim("a", "1Gi", of("fixed"))}, false,
			[]string{"Forbidden " + size}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			lookup := func(name string) (*storagev1.StorageClass, error) {
				if name == "away" {
					return nil, errors.New("trouble")
				}
				if name == "" && test.noDefault {
					return nil, nil
				}
				return classes[name], nil
			}
			if strings.HasPrefix(name, "ASTS-053") {
				lookup = unasked(t)
			}
			updated := claims(t, "OnPodRollingUpdate", test.updated...)
			// The strategy of the new object counts.
			errs := Validate(updated, claims(t, "OnDelete", test.old...), Gates{AutoResizePVC: true}, lookup)
			if diff := cmp.Diff(append([]string{}, test.want...), summary(errs)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			// ASTS-056: without the gate, or with OnDelete, or without a strategy, all of this is free.
			for _, free := range []field.ErrorList{
				Validate(updated, claims(t, "OnDelete", test.old...), Gates{}, unasked(t)),
				Validate(claims(t, "OnDelete", test.updated...), claims(t, "OnPodRollingUpdate", test.old...), Gates{AutoResizePVC: true},
					unasked(t)),
				Validate(claims(t, "", test.updated...), claims(t, "OnPodRollingUpdate", test.old...), Gates{AutoResizePVC: true},
					unasked(t)),
			} {
				if len(free) > 0 {
					t.Errorf("refused: %v", free)
				}
			}
		})
	}
}

// ASTS-054: the newest of the default classes is the default.
func TestDefaultClass(t *testing.T) {
	at := func(name, marked string, seconds int64) storagev1.StorageClass {
		return storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(seconds, 0)),
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": marked}}}
	}
	for want, classes := range map[string][]storagev1.StorageClass{
		"":  {at("x", "false", 5), {}},
		"b": {at("a", "true", 1), at("b", "true", 3), at("x", "false", 5), at("c", "true", 2)},
		"d": {at("e", "true", 3), at("d", "true", 3), at("f", "true", 3)},
	} {
		got := ""
		if class := DefaultClass(classes); class != nil {
			got = class.Name
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
