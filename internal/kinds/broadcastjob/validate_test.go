package broadcastjob

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// written is a job of either version, with that name and spec.
func written(t *testing.T, version, name, spec string) *Written {
	t.Helper()
	text := []byte(`{"metadata":{"name":"` + name + `"},"spec":` + spec + `}`)
	if version == "v1alpha1" {
		job := &appsv1alpha1.BroadcastJob{}
		if err := json.Unmarshal(text, job); err != nil {
			t.Fatal(err)
		}
		return WrittenInV1alpha1(job)
	}
	job := &appsv1beta1.BroadcastJob{}
	if err := json.Unmarshal(text, job); err != nil {
		t.Fatal(err)
	}
	return WrittenInV1beta1(job)
}

const pods = `"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"a","image":"a:1"}]}}`

func with(more string) string { return `{` + pods + more + `}` }

func lines(errs field.ErrorList) (all []string) {
	for _, err := range errs {
		all = append(all, string(err.Type)+" "+err.Field)
	}
	return all
}

// TestValidate shows BJ-020, BJ-021, BJ-022, BJ-023 and BJ-026 in both versions: each fault names its field;
// what is good passes.
func TestValidate(t *testing.T) {
	label := func(labels string) string {
		return `{"template":{"metadata":{"labels":` + labels + `},"spec":{"restartPolicy":"OnFailure","containers":[]}}}`
	}
	policy := func(restart string) string {
		return strings.Replace(with(""), `"restartPolicy":"Never",`, restart, 1)
	}
	const invalid, unsupported, required = "FieldValueInvalid ", "FieldValueNotSupported ", "FieldValueRequired "
	const completion, failure = "spec.completionPolicy.", "spec.failurePolicy."
	for name, test := range map[string]struct {
		name, spec string
		want       []string
	}{
		"good":               {"check-1", with(""), nil},
		"good, of all sorts": {"Check", with(`,"parallelism":"12.5%","completionPolicy":{"type":"Always","activeDeadlineSeconds":0,"ttlSecondsAfterFinished":0},"failurePolicy":{"type":"Pause","restartLimit":0}`), nil},
		"good, forever":      {"check", with(`,"parallelism":0,"completionPolicy":{"type":"Never"},"failurePolicy":{"type":"Continue"}`), nil},
		"no name as yet":     {"", with(""), nil},
		"63 characters":      {strings.Repeat("a", 63), with(""), nil},
		"64 characters":      {strings.Repeat("a", 64), with(""), []string{"FieldValueTooLong metadata.name"}},
		"a dot":              {"a.b", with(""), []string{invalid + "metadata.name"}},
		"an underscore":      {"a_b", with(""), []string{invalid + "metadata.name"}},
		"Never with an end":  {"a", with(`,"completionPolicy":{"type":"Never","activeDeadlineSeconds":5,"ttlSecondsAfterFinished":5}`), []string{invalid + completion + "ttlSecondsAfterFinished", invalid + completion + "activeDeadlineSeconds"}},
		"Never with a time":  {"a", with(`,"completionPolicy":{"type":"Never","ttlSecondsAfterFinished":0}`), []string{invalid + completion + "ttlSecondsAfterFinished"}},
		"no restartPolicy":   {"a", policy(""), []string{unsupported + "spec.template.spec.restartPolicy"}},
		"Always":             {"a", policy(`"restartPolicy":"Always",`), []string{unsupported + "spec.template.spec.restartPolicy"}},
		"OnFailure":          {"a", policy(`"restartPolicy":"OnFailure",`), nil},
		"no template":        {"a", `{}`, []string{required + "spec.template"}},
		"not a template":     {"a", `{"template":{"spec":{"containers":1}}}`, []string{invalid + "spec.template"}},
		"requirements of nodes": {"a", strings.Replace(with(""), `"restartPolicy"`, `"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[`+
			strings.TrimSuffix(strings.Repeat(`{"matchExpressions":[{"key":"a","operator":"Exists"}]},`, 201), ",")+`]}}},"restartPolicy"`, 1),
			[]string{"FieldValueTooMany spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"}},
		"not an image":        {"a", strings.Replace(with(""), "a:1", "A B", 1), []string{invalid + "spec.template.spec.containers[0].image"}},
		"the job's labels":    {"a", label(`{"broadcastjob-name":"x","broadcastjob-controller-uid":"y"}`), []string{invalid + "spec.template.metadata.labels[broadcastjob-name]", invalid + "spec.template.metadata.labels[broadcastjob-controller-uid]"}},
		"the labels, empty":   {"a", label(`{"broadcastjob-name":"","broadcastjob-controller-uid":""}`), nil},
		"unknown types":       {"a", with(`,"completionPolicy":{"type":"Soon"},"failurePolicy":{"type":"Cry"}`), []string{unsupported + completion + "type", unsupported + failure + "type"}},
		"parallelism a word":  {"a", with(`,"parallelism":"many"`), []string{invalid + "spec.parallelism"}},
		"parallelism below 0": {"a", with(`,"parallelism":-1`), []string{invalid + "spec.parallelism"}},
		"-5%":                 {"a", with(`,"parallelism":"-5%"`), []string{invalid + "spec.parallelism"}},
		"numbers below 0":     {"a", with(`,"completionPolicy":{"activeDeadlineSeconds":-1,"ttlSecondsAfterFinished":-1},"failurePolicy":{"restartLimit":-1}`), []string{invalid + completion + "activeDeadlineSeconds", invalid + completion + "ttlSecondsAfterFinished", invalid + failure + "restartLimit"}},
		"all at once":         {"a.b", `{"parallelism":"x","template":{"spec":{"restartPolicy":"Always"}}}`, []string{invalid + "metadata.name", invalid + "spec.parallelism", unsupported + "spec.template.spec.restartPolicy"}},
	} {
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			errs := Validate(written(t, version, test.name, test.spec), nil)
			if diff := cmp.Diff(test.want, lines(errs)); diff != "" {
				t.Errorf("%s, %s: errors (-want +got):\n%s", name, version, diff)
			}
			for _, policy := range []string{`"Never"`, `"OnFailure"`} {
				if len(errs) > 0 && strings.HasSuffix(errs[0].Field, "restartPolicy") &&
					!strings.Contains(errs[0].Error(), policy) {
					t.Errorf("%s, %s: got the error %v, want %s in it", name, version, errs[0], policy)
				}
			}
		}
	}
}

// TestUpdatesAreJudgedAsCreationsAre shows BJ-025 (part): an update is judged as a creation is, no field is
// immutable, and what was stored before is not refused again.
func TestUpdatesAreJudgedAsCreationsAre(t *testing.T) {
	old := written(t, "v1beta1", "a", with(`,"parallelism":-1`))
	if errs := Validate(written(t, "v1beta1", "a", `{"parallelism":-1,"paused":true,"template":{"spec":{"restartPolicy":"OnFailure",`+
		`"nodeSelector":{"a":"b"},"containers":[{"name":"b","image":"b"}]}},"completionPolicy":{"type":"Never"},"failurePolicy":{"type":"Pause","restartLimit":4}}`),
		old); len(errs) > 0 {
		t.Errorf("errs: got %v, want none", errs)
	}
	if errs := Validate(written(t, "v1beta1", "a", with(`,"parallelism":-2`)), old); len(errs) != 1 {
		t.Errorf("number of errors: got %d, want 1\n%v", len(errs), errs)
	}
}

// TestWarnings shows BJ-025 (part): who changes the template of a job that has pods, or has ended, is told
// what does not happen.
func TestWarnings(t *testing.T) {
	other := strings.Replace(with(""), "a:1", "a:2", 1)
	updated := written(t, "v1beta1", "a", other)
	for name, test := range map[string]struct {
		old  string
		set  func(*appsv1beta1.BroadcastJob)
		want string
	}{
		"a new job":         {with(""), func(*appsv1beta1.BroadcastJob) {}, ""},
		"with pods":         {with(""), func(job *appsv1beta1.BroadcastJob) { job.Status.Active = 1 }, "stay as they are"},
		"that has ended":    {with(""), func(job *appsv1beta1.BroadcastJob) { job.Status.Phase = completed }, "does not start again"},
		"the same template": {other, func(job *appsv1beta1.BroadcastJob) { job.Status.Active = 1 }, ""},
	} {
		old := written(t, "v1beta1", "a", test.old)
		test.set(old.job)
		got := strings.Join(Warnings(updated, old), "")
		if (got == "") != (test.want == "") {
			t.Errorf(`%s: got == "": got %t, want %t`, name, got == "", test.want == "")
		}
		if !strings.Contains(got, test.want) {
			t.Errorf("%s: warnings: got %q, want it to contain %q", name, got, test.want)
		}
	}
	if Warnings(updated, nil) != nil {
		t.Error("a creation")
	}
}
