package daemonset_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
)

// written reads a valid DaemonSet with members of its spec, or its metadata, set or replaced.
func written(t *testing.T, version, members string) *daemonset.Written {
	t.Helper()
	spec := document(t, `{`+plain+`,"selector":{"matchLabels":{"app":"shop"}},
		"template":{"metadata":{"labels":{"app":"shop"}},"spec":{"containers":[{"name":"a","image":"i:1"}]}}}`)
	changed := document(t, members)
	base := daemonset.Document{"metadata": changed["metadata"], "spec": spec}
	delete(changed, "metadata")
	maps.Copy(spec, changed)
	text := []byte(mustJSON(t, base))
	if version == "v1alpha1" {
		set := &appsv1alpha1.DaemonSet{}
		if err := json.Unmarshal(text, set); err != nil {
			t.Fatal(err)
		}
		return daemonset.WrittenInV1alpha1(set)
	}
	set := &appsv1beta1.DaemonSet{}
	if err := json.Unmarshal(text, set); err != nil {
		t.Fatal(err)
	}
	return daemonset.WrittenInV1beta1(set)
}

// summary is the type and field of each error.
func summary(errs field.ErrorList) []string {
	lines := []string{}
	for _, err := range errs {
		lines = append(lines, strings.TrimPrefix(string(err.Type), "FieldValue")+" "+err.Field)
	}
	slices.Sort(lines)
	return lines
}

const in = "spec.updateStrategy.rollingUpdate."

// rolling is a rolling update with these options.
func rolling(members string) string {
	return `"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{` + members + `}}`
}

// affine is a template with a label in the node selector and as many requirements in the node affinity.
func affine(requirements int) string {
	return `{"template":{"metadata":{"labels":{"app":"shop"}},"spec":{"nodeSelector":{"a":"b"},"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{
		"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"In","values":["b"` + strings.Repeat(`,"c"`, 1000) + `]}` +
		strings.Repeat(`,{"key":"a","operator":"Exists"}`, requirements-1) + `]}]}}}}}}`
}

func TestValidate(t *testing.T) {
	cases := map[string]struct {
		version, members string // no version stands for both
		want             []string
	}{
		"valid":          {"", `{}`, nil},
		"ADS-022 none":   {"", `{"selector":null}`, []string{"Required spec.selector"}},
		"ADS-022 empty":  {"", `{"selector":{}}`, []string{"Invalid spec.selector"}},
		"ADS-022 others": {"", `{"selector":{"matchLabels":{"app":"x"}}}`, []string{"Invalid spec.template.metadata.labels"}},
		"ADS-022 malformed": {"", `{"selector":{"matchExpressions":[{"key":"a","operator":"Is"}]}}`,
			[]string{"Invalid spec.selector.matchExpressions[0].operator"}},
		"ADS-022 a label of ours": {"", `{"selector":{"matchLabels":{"app":"shop"},
			"matchExpressions":[{"key":"controller-revision-hash","operator":"DoesNotExist"}]}}`, []string{"Forbidden spec.selector"}},
		"ADS-023 no template": {"", `{"template":null}`, []string{"Invalid spec.template.metadata.labels", "Required spec.template"}},
		"ADS-023 pods that end": {"", `{"template":{"metadata":{"labels":{"app":"shop"}},"spec":{"restartPolicy":"OnFailure","activeDeadlineSeconds":5}}}`,
			[]string{"Forbidden spec.template.spec.activeDeadlineSeconds", "NotSupported spec.template.spec.restartPolicy"}},
		"ADS-023 that do not": {"", `{"template":{"metadata":{"labels":{"app":"shop"}},"spec":{"restartPolicy":"Always"}}}`, nil},
		"ADS-024": {"", `{"minReadySeconds":-1,"revisionHistoryLimit":-1}`,
			[]string{"Invalid spec.minReadySeconds", "Invalid spec.revisionHistoryLimit"}},
		"ADS-024 zero":         {"", `{"minReadySeconds":0,"revisionHistoryLimit":0}`, nil},
		"ADS-024 without":      {"", `{"revisionHistoryLimit":null}`, nil},
		"ADS-025 no type":      {"", `{"updateStrategy":{"type":""}}`, []string{"NotSupported spec.updateStrategy.type"}},
		"ADS-025 another type": {"", `{"updateStrategy":{"type":"ReCreate"}}`, []string{"NotSupported spec.updateStrategy.type"}},
		"ADS-025 without":      {"", `{"updateStrategy":{"type":"RollingUpdate"}}`, []string{"Required spec.updateStrategy.rollingUpdate"}},
		"ADS-025 OnDelete":     {"", `{"updateStrategy":{"type":"OnDelete"}}`, nil},
		"ADS-025 OnDelete with anything": {"", `{"updateStrategy":{"type":"OnDelete",
			"rollingUpdate":{"rollingUpdateType":"x","maxUnavailable":"x","maxSurge":-1,"partition":"x","selector":{"matchLabels":{"a b":"c"}}}}}`, nil},

		"ADS-026 numbers":       {"", `{` + rolling(`"maxUnavailable":5`) + `}`, nil},
		"ADS-026 percentages":   {"", `{` + rolling(`"maxUnavailable":"0%","maxSurge":"100%"`) + `}`, nil},
		"ADS-026 negative":      {"", `{` + rolling(`"maxUnavailable":-1,"maxSurge":0`) + `}`, []string{"Invalid " + in + "maxUnavailable"}},
		"ADS-026 above 100%":    {"", `{` + rolling(`"maxUnavailable":0,"maxSurge":"101%"`) + `}`, []string{"Invalid " + in + "maxSurge"}},
		"ADS-026 no percentage": {"", `{` + rolling(`"maxUnavailable":"5"`) + `}`, []string{"Invalid " + in + "maxUnavailable"}},
		"ADS-026 malformed beside the other one": {"", `{` + rolling(`"maxUnavailable":"abc","maxSurge":1`) + `}`,
			[]string{"Invalid " + in + "maxUnavailable"}},
		"ADS-026 both malformed": {"", `{` + rolling(`"maxUnavailable":"abc","maxSurge":"-1%"`) + `}`,
			[]string{"Invalid " + in + "maxSurge", "Invalid " + in + "maxUnavailable"}},
		"ADS-026 both":      {"", `{` + rolling(`"maxUnavailable":1,"maxSurge":"1%"`) + `}`, []string{"Invalid " + in + "maxSurge"}},
		"ADS-026 both zero": {"", `{` + rolling(`"maxUnavailable":"0%","maxSurge":0`) + `}`, []string{"Required " + in + "maxUnavailable"}},
		"ADS-026 neither":   {"", `{` + rolling(``) + `}`, []string{"Required " + in + "maxUnavailable"}},

		"ADS-027 in place": {"", `{` + rolling(`"rollingUpdateType":"InPlaceIfPossible","maxUnavailable":1`) + `}`, nil},
		"ADS-027 in place with a surge": {"", `{` + rolling(`"rollingUpdateType":"InPlaceIfPossible","maxSurge":1`) + `}`,
			[]string{"Required " + in + "maxSurge"}},
		"ADS-027 other": {"", `{` + rolling(`"rollingUpdateType":"Guess","maxUnavailable":1`) + `}`,
			[]string{"NotSupported " + in + "rollingUpdateType"}},
		"ADS-027, IPU-011: in place alone": {"", `{` + rolling(`"rollingUpdateType":"InPlaceOnly","maxUnavailable":1`) + `}`,
			[]string{"NotSupported " + in + "rollingUpdateType"}},
		"ADS-027 Surging": {"v1alpha1", `{` + rolling(`"rollingUpdateType":"Surging"`) + `}`, nil},
		"ADS-027 Surging without a surge": {"v1alpha1", `{` + rolling(`"rollingUpdateType":"Surging","maxSurge":0`) + `}`,
			[]string{"Required " + in + "maxUnavailable"}},
		"ADS-027 Surging with unavailable ones": {"v1alpha1", `{` + rolling(`"rollingUpdateType":"Surging","maxUnavailable":"1%","maxSurge":1`) + `}`,
			[]string{"Invalid " + in + "maxUnavailable"}},
		"ADS-027 Surging is no type of v1beta1": {"v1beta1", `{` + rolling(`"rollingUpdateType":"Surging","maxSurge":1`) + `}`,
			[]string{"NotSupported " + in + "rollingUpdateType"}},

		"ADS-028 a number":     {"", `{` + rolling(`"maxUnavailable":1,"partition":5000`) + `}`, nil},
		"ADS-028 a percentage": {"", `{` + rolling(`"maxUnavailable":1,"partition":"100%"`) + `}`, nil},
		"ADS-028 negative":     {"", `{` + rolling(`"maxUnavailable":1,"partition":-1`) + `}`, []string{"Invalid " + in + "partition"}},
		"ADS-028 above 100%":   {"", `{` + rolling(`"maxUnavailable":1,"partition":"100.5%"`) + `}`, []string{"Invalid " + in + "partition"}},
		"ADS-028 malformed":    {"", `{` + rolling(`"maxUnavailable":1,"partition":"half"`) + `}`, []string{"Invalid " + in + "partition"}},

		"ADS-029 around updates": {"", `{"lifecycle":{"inPlaceUpdate":{},"preNormal":{"finalizersHandler":["a/b"]}}}`,
			[]string{"Forbidden spec.lifecycle.inPlaceUpdate"}},
		"ADS-029 the others": {"", `{"lifecycle":{"preDelete":{"labelsHandler":{"a":"b"}},"preNormal":{"finalizersHandler":["a/b"]}}}`, nil},

		"ADS-030 a number":                          {"", `{"burstReplicas":1}`, nil},
		"ADS-030 a percentage":                      {"", `{"burstReplicas":"0.5%"}`, nil},
		"ADS-030 without":                           {"", `{"burstReplicas":null}`, nil},
		"ADS-030 zero":                              {"", `{"burstReplicas":0}`, []string{"Invalid spec.burstReplicas"}},
		"ADS-030 zero percent":                      {"", `{"burstReplicas":"0%"}`, []string{"Invalid spec.burstReplicas"}},
		"ADS-030 negative":                          {"", `{"burstReplicas":-1}`, []string{"Invalid spec.burstReplicas"}},
		"ADS-030 malformed":                         {"", `{"burstReplicas":"many"}`, []string{"Invalid spec.burstReplicas"}},
		"ADS-030 a good selector":                   {"", `{` + rolling(`"maxUnavailable":1,"selector":{"matchLabels":{"a":"b"}}`) + `}`, nil},
		"ADS-023 (part) many requirements of nodes": {"", affine(199), nil},
		"ADS-023 (part) too many requirements of nodes": {"", affine(200),
			[]string{"TooMany spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"}},
		"ADS-030 a long selector": {"", `{` + rolling(`"maxUnavailable":1,"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"`+
			strings.Repeat(`,"c"`, 198)+`]}]}`) + `}`, nil},
		"ADS-030 a selector that is too long": {"", `{` + rolling(`"maxUnavailable":1,"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"`+
			strings.Repeat(`,"c"`, 199)+`]}]}`) + `}`, []string{"TooMany " + in + "selector"}},
		"ADS-030 a bad selector": {"", `{` + rolling(`"maxUnavailable":1,"selector":{"matchLabels":{"a b":"c"},"matchExpressions":[{"key":"a","operator":"Is"}]}`) + `}`,
			[]string{"Invalid " + in + "selector.matchExpressions[0].operator", "Invalid " + in + "selector.matchLabels"}},

		"ADS-215 (part) the annotation": {"v1alpha1", `{"metadata":{"annotations":{"apps.kruise.io/v1beta1-only-fields":"{\"scaleStrategi\":{}}"}}}`,
			[]string{"Invalid metadata.annotations[apps.kruise.io/v1beta1-only-fields]"}},
		"ADS-215 (part) the annotation means nothing": {"v1beta1", `{"metadata":{"annotations":{"apps.kruise.io/v1beta1-only-fields":"x"}}}`, nil},
		"ADS-020 (part) all errors at once": {"", `{"minReadySeconds":-1,"burstReplicas":0,"selector":{},"updateStrategy":{"type":"x"}}`,
			[]string{"Invalid spec.burstReplicas", "Invalid spec.minReadySeconds", "Invalid spec.selector", "NotSupported spec.updateStrategy.type"}},
	}
	for name, test := range cases {
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			if test.version != "" && test.version != version {
				continue
			}
			t.Run(name+" "+version, func(t *testing.T) {
				if diff := cmp.Diff(append([]string{}, test.want...), summary(daemonset.Validate(written(t, version, test.members), nil))); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

// ADS-032: of the spec all may change but the selector; the refusal lists what may, in the author's version.
func TestAllMayChangeButTheSelector(t *testing.T) {
	const labels = `{"metadata":{"labels":{"app":"shop","b":"c"}},"spec":{"containers":[{"name":"a","image":"i:2"}]}}`
	for version, scale := range map[string]string{"v1alpha1": "", "v1beta1": "'scaleStrategy', "} {
		old := written(t, version, `{}`)
		for _, members := range []string{`{"template":` + labels + `}`, `{"updateStrategy":{"type":"OnDelete"}}`, `{"burstReplicas":1}`, `{"minReadySeconds":1}`,
			`{"revisionHistoryLimit":1}`, `{"lifecycle":{"preDelete":{}}}`, `{"scaleStrategy":{"partitionedScaling":true}}`} {
			if errs := daemonset.Validate(written(t, version, members), old); len(errs) > 0 {
				t.Errorf("%s: errors: got %v, want none", members, errs)
			}
		}
		errs := daemonset.Validate(written(t, version, `{"selector":{"matchLabels":{"b":"c"}},"template":`+labels+`}`), old)
		want := "spec: Forbidden: updates to daemonset spec for fields other than 'template', 'updateStrategy', " + scale +
			"'lifecycle', 'burstReplicas', 'minReadySeconds' and 'revisionHistoryLimit' are forbidden; selector was changed"
		if len(errs) != 1 {
			t.Errorf("%s: number of errors: got %d, want 1\n%v", version, len(errs), errs)
		} else if errs[0].Error() != want {
			t.Errorf("%s: first error: got %q, want %q\n%v", version, errs[0].Error(), want, errs)
		}
	}
}

// What was stored without webhooks, or by an older release, can be mended step by step. What comes with a
// change is refused.
func TestOldMistakesDoNotRefuseAnUpdate(t *testing.T) {
	old := written(t, "v1beta1", `{"burstReplicas":0,"minReadySeconds":-1}`)
	if errs := daemonset.Validate(written(t, "v1beta1", `{"burstReplicas":0,"minReadySeconds":5}`), old); len(errs) > 0 {
		t.Errorf("errs: got %v, want none", errs)
	}
	asleep := written(t, "v1beta1", `{"updateStrategy":{"type":"OnDelete","rollingUpdate":{"maxUnavailable":"x"}}}`)
	if got := summary(daemonset.Validate(written(t, "v1beta1", `{`+rolling(`"maxUnavailable":"x"`)+`}`), asleep)); len(got) != 1 {
		t.Errorf("options that come into use: %v", got)
	}
}

// ADS-031: a warning, where the old and the new pod of a node cannot have the same port of it.
func TestAWarningAboutPortsOfTheNode(t *testing.T) {
	template := func(spec string) string {
		return `"template":{"metadata":{"labels":{"app":"shop"}},"spec":{` + spec + `}}`
	}
	const port, hostPort = `[{"name":"a","image":"i","ports":[{"containerPort":80}]}]`, `[{"name":"a","image":"i","ports":[{"containerPort":80,"hostPort":8080}]}]`
	surge := rolling(`"maxSurge":"1%","maxUnavailable":0`)
	for members, warns := range map[string]bool{
		surge + `,` + template(`"containers":`+port):                                                                false,
		surge + `,` + template(`"containers":`+hostPort):                                                            true,
		surge + `,` + template(`"initContainers":`+hostPort):                                                        true,
		surge + `,` + template(`"hostNetwork":true,"containers":`+port):                                             true,
		surge + `,` + template(`"hostNetwork":true,"containers":[]`):                                                false,
		rolling(`"maxUnavailable":1`) + `,` + template(`"containers":`+hostPort):                                    false,
		rolling(`"maxUnavailable":1,"maxSurge":"0%"`) + `,` + template(`"containers":`+hostPort):                    false,
		`"updateStrategy":{"type":"OnDelete","rollingUpdate":{"maxSurge":1}},` + template(`"containers":`+hostPort): false,
		`"updateStrategy":{"type":"RollingUpdate"},` + template(`"containers":`+hostPort):                           false,
	} {
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			got := written(t, version, `{`+members+`}`).Warnings()
			if (len(got) == 1) != warns {
				t.Errorf("%s: a fault: got %t, want %t\n%s", members, len(got) == 1, warns, got)
			} else if warns && !strings.Contains(got[0], "container a uses a port of the node") {
				t.Errorf("%s: first result: got %q, want it to contain %q\n%s", members, got[0],
					"container a uses a port of the node", got)
			}
		}
	}
}

// ADS-023 (part): a DaemonSet that an earlier release admitted has 300 requirements. They may become fewer step by
// step, and no more.
func TestStoredRequirementsMayBecomeFewer(t *testing.T) {
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		errs := daemonset.Validate(written(t, version, affine(298)), written(t, version, affine(299)))
		if len(errs) > 0 {
			t.Errorf("%s: fewer than are stored: %v", version, errs)
		}
		if errs := daemonset.Validate(written(t, version, affine(300)), written(t, version, affine(299))); len(errs) != 1 {
			t.Errorf("%s: more than are stored: %v", version, errs)
		}
	}
}

// ADS-023 (part): a template that has only a node selector is told of a field that it does not have.
func TestErrorNamesTheNodeSelector(t *testing.T) {
	var labels []string
	for i := range 201 {
		labels = append(labels, fmt.Sprintf(`"l%d":"x"`, i))
	}
	errs := daemonset.Validate(written(t, "v1beta1", `{"template":{"metadata":{"labels":{"app":"shop"}},"spec":{"nodeSelector":{`+strings.Join(labels, ",")+`}}}}`), nil)
	if len(errs) != 1 || strings.Contains(errs[0].Field, "affinity") {
		t.Errorf("the template has no affinity: %v", errs)
	}
}
