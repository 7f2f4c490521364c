package cloneset

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/inplace"
)

// written reads a valid CloneSet with members of its spec set, replaced or (null) removed.
func written(t *testing.T, version, members string) *Written {
	t.Helper()
	base := document(t, `{"metadata":{"name":"shop"},"spec":{"replicas":5,"selector":{"matchLabels":{"app":"shop"}},
		"template":{"metadata":{"labels":{"app":"shop"}},"spec":{"containers":[{"name":"a","image":"i:1"}]}}}}`)
	for key, value := range document(t, members) {
		if key == "metadata" {
			base["metadata"] = value
			continue
		}
		base["spec"].(Document)[key] = value
	}
	data := []byte(mustJSON(t, base))
	if version == "v1alpha1" {
		set := &appsv1alpha1.CloneSet{}
		if err := json.Unmarshal(data, set); err != nil {
			t.Fatal(err)
		}
		return WrittenInV1alpha1(set)
	}
	set := &appsv1beta1.CloneSet{}
	if err := json.Unmarshal(data, set); err != nil {
		t.Fatal(err)
	}
	return WrittenInV1beta1(set)
}

// summary is the type and field of each error.
func summary(errs field.ErrorList) []string {
	lines := []string{}
	for _, err := range errs {
		lines = append(lines, fmt.Sprintf("%s %s", strings.TrimPrefix(string(err.Type), "FieldValue"), err.Field))
	}
	sort.Strings(lines)
	return lines
}

func TestValidateCreate(t *testing.T) {
	const alpha, beta, both = "v1alpha1", "v1beta1", "v1alpha1 v1beta1"
	cases := map[string]struct {
		versions, members string
		want              []string
	}{
		"valid":                 {both, `{}`, nil},
		"CS-020 name":           {both, `{"metadata":{"name":"Shop_1"}}`, []string{"Invalid metadata.name"}},
		"CS-020 generated name": {both, `{"metadata":{"generateName":"shop-"}}`, nil},
		"CS-035 name too long for pods": {both, `{"metadata":{"name":"` + strings.Repeat("a", 248) + `"}}`,
			[]string{"Invalid metadata.name"}},
		"CS-052 name longer than a label": {both, `{"metadata":{"name":"` + strings.Repeat("a", 70) + `"}}`, nil},
		"CS-020 replicas":                 {both, `{"replicas":-1}`, []string{"Invalid spec.replicas"}},
		"CS-021 no selector":              {both, `{"selector":null}`, []string{"Required spec.selector"}},
		"CS-021 empty selector":           {both, `{"selector":{}}`, []string{"Invalid spec.selector"}},
		"CS-021 malformed selector": {both, `{"selector":{"matchExpressions":[{"key":"a","operator":"Is"}]}}`,
			[]string{"Invalid spec.selector.matchExpressions[0].operator"}},
		"CS-021 a label of ours": {both, `{"selector":{"matchLabels":{"app":"shop"},
			"matchExpressions":[{"key":"lifecycle.apps.kruise.io/state","operator":"DoesNotExist"}]}}`, []string{"Forbidden spec.selector"}},
		"CS-021 other labels": {both, `{"selector":{"matchLabels":{"app":"x"}}}`,
			[]string{"Invalid spec.template.metadata.labels"}},
		"CS-022 volume and claim of one name": {both,
			`{"template":{"metadata":{"labels":{"app":"shop"}},"spec":{"volumes":[{"name":"d"}]}},"volumeClaimTemplates":[{"metadata":{"name":"d"}}]}`,
			[]string{"Duplicate spec.volumeClaimTemplates[0].metadata.name"}},
		"CS-023 restart policy and deadline": {both,
			`{"template":{"metadata":{"labels":{"app":"shop"}},"spec":{"restartPolicy":"Never","activeDeadlineSeconds":5}}}`,
			[]string{"Forbidden spec.template.spec.activeDeadlineSeconds", "NotSupported spec.template.spec.restartPolicy"}},
		"CS-016 template that does not fit": {both, `{"template":{"spec":5}}`, []string{"Invalid spec.template"}},
		"no template": {both, `{"template":null}`, []string{"Invalid spec.template.metadata.labels",
			"Required spec.template"}},
		"CS-024 v1beta1 type and policy": {beta, `{"updateStrategy":{"type":"ReCreate","rollingUpdate":{"podUpdatePolicy":"Never"}}}`,
			[]string{"Invalid spec.updateStrategy.rollingUpdate.podUpdatePolicy", "Invalid spec.updateStrategy.type"}},
		"CS-024 v1alpha1 type": {alpha, `{"updateStrategy":{"type":"RollingUpdate"}}`,
			[]string{"Invalid spec.updateStrategy.type"}},
		"CS-024, CS-343 v1alpha1 types": {alpha, `{"updateStrategy":{"type":"OnDelete"}}`, nil},
		"CS-025 v1beta1 amounts": {beta, `{"updateStrategy":{"rollingUpdate":{"partition":-1,"maxUnavailable":"5","maxSurge":"x%"}}}`,
			[]string{"Invalid spec.updateStrategy.rollingUpdate.maxSurge", "Invalid spec.updateStrategy.rollingUpdate.maxUnavailable",
				"Invalid spec.updateStrategy.rollingUpdate.partition"}},
		"CS-025 v1alpha1 amounts": {alpha, `{"updateStrategy":{"partition":"5","maxUnavailable":"-1%","maxSurge":-1}}`,
			[]string{"Invalid spec.updateStrategy.maxSurge", "Invalid spec.updateStrategy.maxUnavailable",
				"Invalid spec.updateStrategy.partition"}},
		"CS-025, CS-095 fractions": {alpha,
			`{"updateStrategy":{"partition":"12.5%","maxUnavailable":"0.5%","maxSurge":"99.9%"}}`, nil},
		"CS-026 nothing could move, v1alpha1": {alpha, `{"updateStrategy":{"maxUnavailable":0,"maxSurge":"0%"}}`,
			[]string{"Invalid spec.updateStrategy.maxUnavailable"}},
		"CS-026 nothing could move, v1beta1": {beta, `{"updateStrategy":{"rollingUpdate":{"maxUnavailable":"0%"}}}`,
			[]string{"Invalid spec.updateStrategy.rollingUpdate.maxUnavailable"}},
		"CS-026 without replicas": {both,
			`{"replicas":0,"updateStrategy":{"maxUnavailable":0,"rollingUpdate":{"maxUnavailable":0}}}`, nil},
		"CS-341 surge instead":                     {beta, `{"updateStrategy":{"rollingUpdate":{"maxUnavailable":0,"maxSurge":1}}}`, nil},
		"CS-342 OnDelete with part of the rolling": {beta, `{"updateStrategy":{"type":"OnDelete","rollingUpdate":{"maxSurge":1}}}`, nil},
		"CS-027, IPU-021 surge in place, v1beta1": {beta,
			`{"updateStrategy":{"rollingUpdate":{"podUpdatePolicy":"InPlaceOnly","maxSurge":"10%"}}}`, []string{"Invalid spec.updateStrategy.rollingUpdate.maxSurge"}},
		"CS-027 surge in place, v1alpha1": {alpha, `{"updateStrategy":{"type":"InPlaceOnly","maxSurge":1}}`,
			[]string{"Invalid spec.updateStrategy.maxSurge"}},
		"CS-028 priority": {alpha, `{"updateStrategy":{"priorityStrategy":{"orderPriority":[{"orderedKey":""}],"weightPriority":[{"weight":101,"matchSelector":{}}]}}}`,
			[]string{"Invalid spec.updateStrategy.priorityStrategy",
				"Invalid spec.updateStrategy.priorityStrategy.weightPriority[0].weight",
				"Required spec.updateStrategy.priorityStrategy.orderPriority[0].orderedKey", "Required spec.updateStrategy.priorityStrategy.weightPriority[0].matchSelector"}},
		"CS-028 scatter": {beta, `{"updateStrategy":{"rollingUpdate":{"scatterStrategy":[{"key":"","value":""},{"key":"a","value":"b"},{"key":"a","value":"b"}]}}}`,
			[]string{"Duplicate spec.updateStrategy.rollingUpdate.scatterStrategy[2]",
				"Required spec.updateStrategy.rollingUpdate.scatterStrategy[0].key"}},
		"CS-029 repeated name": {both, `{"scaleStrategy":{"podsToDelete":["a","b","a"]}}`,
			[]string{"Invalid spec.scaleStrategy.podsToDelete[2]"}},
		"CS-030 deadline": {both, `{"minReadySeconds":10,"progressDeadlineSeconds":10}`,
			[]string{"Invalid spec.progressDeadlineSeconds"}},
		"CS-030 negative deadline":   {both, `{"progressDeadlineSeconds":-1}`, []string{"Invalid spec.progressDeadlineSeconds"}},
		"CS-030 deadline means none": {both, `{"minReadySeconds":2147483647,"progressDeadlineSeconds":2147483647}`, nil},
		"CS-031, IPU-022 in place": {beta, `{"updateStrategy":{"rollingUpdate":{"inPlaceUpdateStrategy":{"gracePeriodSeconds":-1,"imagePreDownloadParallelism":"5%","imagePreDownloadTimeoutSeconds":-1,"imagePreDownloadMinUpdatedReadyPods":-1}}}}`,
			[]string{"Invalid spec.updateStrategy.rollingUpdate.inPlaceUpdateStrategy.gracePeriodSeconds",
				"Invalid spec.updateStrategy.rollingUpdate.inPlaceUpdateStrategy.imagePreDownloadMinUpdatedReadyPods",
				"Invalid spec.updateStrategy.rollingUpdate.inPlaceUpdateStrategy.imagePreDownloadParallelism", "Invalid spec.updateStrategy.rollingUpdate.inPlaceUpdateStrategy.imagePreDownloadTimeoutSeconds"}},
		"CS-031 text that is a number": {beta,
			`{"updateStrategy":{"rollingUpdate":{"inPlaceUpdateStrategy":{"imagePreDownloadParallelism":"5"}}}}`, nil},
		"CS-031 annotations have no rules": {alpha,
			`{"metadata":{"name":"a","annotations":{"apps.kruise.io/image-predownload-timeout-seconds":"-5"}}}`, nil},
		"CS-035, CS-347 negative": {both, `{"minReadySeconds":-1,"revisionHistoryLimit":-1}`,
			[]string{"Invalid spec.minReadySeconds", "Invalid spec.revisionHistoryLimit"}},
		"CS-035 scale limit": {both, `{"scaleStrategy":{"maxUnavailable":"5"}}`,
			[]string{"Invalid spec.scaleStrategy.maxUnavailable"}},
		"CS-035 claims without unique name": {both, `{"volumeClaimTemplates":[{},{"metadata":{"name":"d"}},{"metadata":{"name":"d"}}]}`,
			[]string{"Duplicate spec.volumeClaimTemplates[2].metadata.name", "Required spec.volumeClaimTemplates[0].metadata.name"}},
		"CS-035 names of claims are too long": {both, `{"metadata":{"name":"` + strings.Repeat("s", 200) +
			`"},"volumeClaimTemplates":[{"metadata":{"name":"` + strings.Repeat("d", 46) + `"}},{"metadata":{"name":"` + strings.Repeat("d",
			47) + `"}}]}`,
			[]string{"Invalid spec.volumeClaimTemplates[1].metadata.name"}},
		"claims that are no list": {both, `{"volumeClaimTemplates":{}}`, []string{"Invalid spec.volumeClaimTemplates"}},
	}
	for name, test := range cases {
		for version := range strings.FieldsSeq(test.versions) {
			t.Run(version+" "+name, func(t *testing.T) {
				want := append([]string{}, test.want...)
				if diff := cmp.Diff(want, summary(Validate(written(t, version, test.members), nil, inplace.Options{}))); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestValidateUpdate(t *testing.T) {
	const other = `"template":{"metadata":{"labels":{"app":"shop","new":"x"}},"spec":{"containers":[{"name":"a","image":"i:2"}]}}`
	const env = `"template":{"metadata":{"labels":{"app":"shop"}},"spec":{"containers":[{"name":"a","image":"i:1","env":[{"name":"X"}]}]}}`
	cases := map[string]struct {
		version, old, updated string
		want                  []string
	}{
		"CS-032 mutable fields": {"v1beta1", `{}`, `{"replicas":3,` + env +
			`,"lifecycle":{},"scaleStrategy":{"podsToDelete":["x"]},"updateStrategy":{"type":"OnDelete"},"minReadySeconds":3,"progressDeadlineSeconds":9,"volumeClaimTemplates":[{"metadata":{"name":"d"}}],"revisionHistoryLimit":3}`, nil},
		"CS-032 selector": {"v1alpha1", `{}`, `{"selector":{"matchExpressions":[{"key":"app","operator":"Exists"}]}}`,
			[]string{"Forbidden spec"}},
		"CS-033 image and labels in place, v1beta1": {"v1beta1", `{}`,
			`{` + other + `,"updateStrategy":{"rollingUpdate":{"podUpdatePolicy":"InPlaceOnly"}}}`, nil},
		"CS-033 env in place, v1beta1": {"v1beta1", `{}`, `{` + env +
			`,"updateStrategy":{"rollingUpdate":{"podUpdatePolicy":"InPlaceOnly"}}}`, []string{"Forbidden spec"}},
		"CS-033 env in place, v1alpha1": {"v1alpha1", `{}`, `{` + env + `,"updateStrategy":{"type":"InPlaceOnly"}}`,
			[]string{"Forbidden spec"}},
		"CS-033 env if possible": {"v1alpha1", `{}`, `{` + env +
			`,"updateStrategy":{"type":"InPlaceIfPossible"}}`, nil},
		"what is wrong already does not stop other updates": {"v1beta1", `{"minReadySeconds":-1}`, `{"minReadySeconds":-1,"replicas":3}`,
			nil},
		"what is wrong already may move in its list": {"v1beta1",
			`{"updateStrategy":{"rollingUpdate":{"scatterStrategy":[{"value":"a"}]}}}`, `{"updateStrategy":{"rollingUpdate":{"scatterStrategy":[{"key":"k","value":"b"},{"value":"a"}]}}}`, nil},
		"what is wrong already may not be wrong once more": {"v1beta1",
			`{"updateStrategy":{"rollingUpdate":{"scatterStrategy":[{"value":"a"}]}}}`, `{"updateStrategy":{"rollingUpdate":{"scatterStrategy":[{"value":"b"},{"value":"a"}]}}}`, []string{"Required spec.updateStrategy.rollingUpdate.scatterStrategy[1].key"}},
		"what is wrong already may not get worse": {"v1beta1", `{"minReadySeconds":-1}`, `{"minReadySeconds":-2}`,
			[]string{"Invalid spec.minReadySeconds"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			errs := Validate(written(t, test.version, test.updated), written(t, test.version, test.old), inplace.Options{})
			if diff := cmp.Diff(append([]string{}, test.want...), summary(errs)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, err := range errs {
				if err.Type == field.ErrorTypeForbidden && strings.Contains(name, "env") &&
					!strings.Contains(err.Detail, "spec.containers[0].env") {
					t.Errorf("CS-033: the message does not name the path: %s", err.Detail)
				}
				if strings.Contains(name, "selector") && !strings.Contains(err.Detail, "'volumeClaimTemplates'") {
					t.Errorf("CS-032: the message does not list the mutable fields: %s", err.Detail)
				}
			}
		})
	}
}

// CS-344: names that do not exist are told, not refused; known ones are not told again.
func TestPodsToDeleteWarnings(t *testing.T) {
	set := func(names ...string) *appsv1beta1.CloneSet {
		s := &appsv1beta1.CloneSet{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u"}}
		s.Spec.ScaleStrategy.PodsToDelete = names
		return s
	}
	now := metav1.Now()
	isController := true
	owner := []metav1.OwnerReference{{UID: "u", Controller: &isController}}
	pods := map[string]*corev1.Pod{
		"mine":    {ObjectMeta: metav1.ObjectMeta{OwnerReferences: owner}},
		"leaving": {ObjectMeta: metav1.ObjectMeta{OwnerReferences: owner, DeletionTimestamp: &now}},
		"foreign": {},
	}
	got := PodsToDeleteWarnings(set("old", "mine", "leaving", "foreign", "gone"), set("old"),
		func(name string) *corev1.Pod { return pods[name] })
	want := []string{
		`spec.scaleStrategy.podsToDelete[2]: "leaving" is ignored: the pod is already being deleted`,
		`spec.scaleStrategy.podsToDelete[3]: "foreign" is ignored: the pod does not belong to this CloneSet`,
		`spec.scaleStrategy.podsToDelete[4]: "gone" is ignored: there is no such pod`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	asked := 0
	got = PodsToDeleteWarnings(set(make([]string, 100_000)...), nil, func(string) *corev1.Pod { asked++; return pods["mine"] })
	if asked != 50 {
		t.Errorf("asked: got %d, want 50; a long list costs %d look-ups: %q", asked, asked, got)
	} else if len(got) != 1 {
		t.Errorf("number of results: got %d, want 1; a long list costs %d look-ups: %q", len(got), asked, got)
	} else if !strings.Contains(got[0], "only the first 50 names that are new were looked up") {
		t.Errorf("first result: got %q, want it to contain %q; a long list costs %d look-ups: %q", got[0],
			"only the first 50 names that are new were looked up", asked, got)
	}
}

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
			t.Errorf("errors: got %v, want none", errs)
		}
		if got := summary(Validate(of(201), nil, inplace.Options{})); len(got) != 1 {
			t.Errorf("number of results: got %d, want 1\n%v", len(got), got)
		} else if !strings.HasPrefix(got[0], "TooMany spec.updateStrategy.rollingUpdate.") {
			t.Errorf("first result: got %q, want it to begin with %q\n%v", got[0],
				"TooMany spec.updateStrategy.rollingUpdate.", got)
		}
		if errs := Validate(of(201), of(201), inplace.Options{}); len(errs) > 0 {
			t.Errorf("what is stored already: %v", errs)
		}
	}
}
