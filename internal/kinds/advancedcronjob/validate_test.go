package advancedcronjob_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/podtemplate"
	. "github.com/afloat-project/afloat/internal/kinds/advancedcronjob"
	. "github.com/afloat-project/afloat/internal/kinds/advancedcronjob/advancedcronjobtest"
	"github.com/afloat-project/afloat/internal/kinds/imagepull"
)

type cron = appsv1beta1.AdvancedCronJob

// faults are the types and fields of errors.
func faults(errs field.ErrorList) string {
	var all []string
	for _, err := range errs {
		all = append(all, fmt.Sprintf("%s %s", strings.TrimPrefix(string(err.Type), "FieldValue"), err.Field))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func schedules(text string) func(*cron) { return func(c *cron) { c.Spec.Schedule = text } }
func zoned(name string) func(*cron)     { return func(c *cron) { c.Spec.TimeZone = &name } }

// pulls changes the spec of the template of ImageListPullJobs.
func pulls(change func(*appsv1beta1.ImageListPullJobSpec)) func(*cron) {
	return func(c *cron) { change(&c.Spec.Template.ImageListPullJobTemplate.Spec) }
}

// ACJ-020, ACJ-021, ACJ-022, ACJ-023 (part), ACJ-024, ACJ-025, ACJ-017, ACJ-027: what is refused, and at
// which field.
func TestValidate(t *testing.T) {
	policy := func(p appsv1beta1.ConcurrencyPolicy) func(*cron) { return Policy(p) }
	named := func(name string) func(*cron) { return func(c *cron) { c.Name = name } }
	const images = "spec.template.imageListPullJobTemplate.spec."
	labels := metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	broken := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	for name, test := range map[string]struct {
		kind   string
		change func(*cron)
		want   string
	}{
		"ACJ-020 a name":               {"Job", named("Nightly-2"), ""},
		"ACJ-020 the longest name":     {"Job", named(strings.Repeat("a", 63)), ""},
		"ACJ-020 too long":             {"Job", named(strings.Repeat("a", 64)), "Invalid metadata.name"},
		"ACJ-020 a dot":                {"Job", named("a.b"), "Invalid metadata.name"},
		"ACJ-020 none":                 {"Job", named(""), "Invalid metadata.name"},
		"ACJ-021 lists, ranges, steps": {"Job", schedules("0,30 9-17/2 ? JAN-MAR MON,FRI"), ""},
		"ACJ-021 a descriptor":         {"Job", schedules("@every 90m"), ""},
		"ACJ-021 a zone":               {"Job", schedules("CRON_TZ=Europe/Berlin @daily"), ""},
		"ACJ-021 empty":                {"Job", schedules(""), "Required spec.schedule"},
		"ACJ-021 malformed":            {"Job", schedules("* * * *"), "Invalid spec.schedule"},
		"ACJ-021 what crashes others":  {"Job", schedules("TZ=0"), "Invalid spec.schedule"},
		"ACJ-021 an unknown zone":      {"Job", schedules("TZ=Mars/North * * * * *"), "Invalid spec.schedule"},
		"ACJ-022 two zones": {"Job", func(c *cron) { schedules("TZ=Europe/Berlin * * * * *")(c); zoned("Europe/Berlin")(c) },
			"Invalid spec.schedule"},
		"ACJ-023 (part) a zone":  {"Job", zoned("Europe/Berlin"), ""},
		"ACJ-023 (part) empty":   {"Job", zoned(""), "Invalid spec.timeZone"},
		"ACJ-023 (part) local":   {"Job", zoned("lOcAl"), "Invalid spec.timeZone"},
		"ACJ-023 (part) unknown": {"Job", zoned("Mars/North"), "Invalid spec.timeZone"},
		"ACJ-024 none":           {"Job", func(c *cron) { c.Spec.Template = appsv1beta1.CronJobTemplate{} }, "Forbidden spec.template"},
		"ACJ-024 two": {"Job", func(c *cron) {
			CronJob("BroadcastJob", "").Spec.Template.DeepCopyInto(&c.Spec.Template)
			c.Spec.Template.JobTemplate = CronJob("Job", "").Spec.Template.JobTemplate
		}, "Forbidden spec.template"},
		"ACJ-025 zeros": {"Job", func(c *cron) {
			Deadline(0)(c)
			c.Spec.SuccessfulJobsHistoryLimit, c.Spec.FailedJobsHistoryLimit = new(int32), new(int32)
		}, ""},
		"ACJ-025 negative numbers": {"Job", func(c *cron) {
			Deadline(-1)(c)
			c.Spec.SuccessfulJobsHistoryLimit, c.Spec.FailedJobsHistoryLimit = new(int32(-1)), new(int32(-1))
		},
			"Invalid spec.failedJobsHistoryLimit, Invalid spec.startingDeadlineSeconds, Invalid spec.successfulJobsHistoryLimit"},
		"ACJ-017 the policies":   {"Job", policy("Replace"), ""},
		"ACJ-017 another policy": {"Job", policy("Queue"), "NotSupported spec.concurrencyPolicy"},
		"ACJ-026 restarts for ever": {"Job", func(c *cron) {
			c.Spec.Template.JobTemplate.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyAlways
		},
			"NotSupported spec.template.jobTemplate.spec.template.spec.restartPolicy"},
		"ACJ-026 numbers of a Job": {"Job", func(c *cron) {
			spec := &c.Spec.Template.JobTemplate.Spec
			spec.Parallelism, spec.Completions, spec.BackoffLimit, spec.ActiveDeadlineSeconds, spec.TTLSecondsAfterFinished = new(int32(-1)), new(int32(-1)), new(int32(-1)), new(int64(-1)), new(int32(-1))
		}, "Invalid spec.template.jobTemplate.spec.activeDeadlineSeconds, Invalid spec.template.jobTemplate.spec.backoffLimit, Invalid spec.template.jobTemplate.spec.completions, " +
			"Invalid spec.template.jobTemplate.spec.parallelism, Invalid spec.template.jobTemplate.spec.ttlSecondsAfterFinished"},
		"ACJ-026 undecodable": {"Job", func(c *cron) { _ = c.Spec.Template.JobTemplate.UnmarshalJSON([]byte(`{"spec": 5}`)) }, "Invalid spec.template.jobTemplate"},
		"ACJ-026 undecodable pods": {"BroadcastJob", func(c *cron) {
			_ = c.Spec.Template.BroadcastJobTemplate.Spec.Template.UnmarshalJSON([]byte(`{"spec": 5}`))
		},
			"Invalid spec.template.broadcastJobTemplate.spec.template"},
		"ACJ-026 by the rules of BroadcastJobs": {"BroadcastJob", func(c *cron) { c.Spec.Template.BroadcastJobTemplate.Spec.Paused = true },
			"Forbidden spec.template.broadcastJobTemplate.spec.paused"},
		"ACJ-027 Replace": {"ImageListPullJob", policy("Replace"), ""},
		"ACJ-027 Forbid":  {"ImageListPullJob", policy("Forbid"), ""},
		"ACJ-027 Allow":   {"ImageListPullJob", policy("Allow"), "Invalid spec.concurrencyPolicy"},
		"ACJ-027 names of nodes": {"ImageListPullJob", pulls(func(s *appsv1beta1.ImageListPullJobSpec) {
			s.Selector = &appsv1beta1.ImagePullJobNodeSelector{Names: []string{"a", "b"}}
		}), ""},
		"ACJ-027 labels and names": {"ImageListPullJob", pulls(func(s *appsv1beta1.ImageListPullJobSpec) {
			s.Selector = &appsv1beta1.ImagePullJobNodeSelector{Names: []string{"a"}, LabelSelector: labels}
		}), "Invalid " + images + "selector.names"},
		"ACJ-027 a name twice": {"ImageListPullJob", pulls(func(s *appsv1beta1.ImageListPullJobSpec) {
			s.Selector = &appsv1beta1.ImagePullJobNodeSelector{Names: []string{"a", "a"}}
		}), "Invalid " + images + "selector.names"},
		"ACJ-027 a broken selector": {"ImageListPullJob", pulls(func(s *appsv1beta1.ImageListPullJobSpec) {
			s.Selector = &appsv1beta1.ImagePullJobNodeSelector{LabelSelector: broken}
		}), "Invalid " + images + "selector"},
		"ACJ-027 a broken podSelector": {"ImageListPullJob", pulls(func(s *appsv1beta1.ImageListPullJobSpec) {
			s.PodSelector = &appsv1beta1.ImagePullJobPodSelector{LabelSelector: broken}
		}), "Invalid " + images + "podSelector"},
		"ACJ-027 two selectors": {"ImageListPullJob", pulls(func(s *appsv1beta1.ImageListPullJobSpec) {
			s.Selector, s.PodSelector = &appsv1beta1.ImagePullJobNodeSelector{LabelSelector: labels}, &appsv1beta1.ImagePullJobPodSelector{LabelSelector: labels}
		}), "Invalid " + images + "selector"},
		"ACJ-027 no images":      {"ImageListPullJob", pulls(func(s *appsv1beta1.ImageListPullJobSpec) { s.Images = nil }), "Invalid " + images + "images"},
		"ACJ-027 255 images":     {"ImageListPullJob", pulls(func(s *appsv1beta1.ImageListPullJobSpec) { s.Images = numbered(255) }), ""},
		"ACJ-027 256 images":     {"ImageListPullJob", pulls(func(s *appsv1beta1.ImageListPullJobSpec) { s.Images = numbered(256) }), "Invalid " + images + "images"},
		"ACJ-027 an image twice": {"ImageListPullJob", pulls(func(s *appsv1beta1.ImageListPullJobSpec) { s.Images = []string{"a", "b", "a"} }), "Invalid " + images + "images[2]"},
		"ACJ-027 no image":       {"ImageListPullJob", pulls(func(s *appsv1beta1.ImageListPullJobSpec) { s.Images = []string{"a b"} }), "Invalid " + images + "images[0]"},
		"ACJ-027 a job for ever": {"ImageListPullJob", pulls(func(s *appsv1beta1.ImageListPullJobSpec) { s.CompletionPolicy.Type = "Never" }), "NotSupported " + images + "completionPolicy.type"},
		"ACJ-027 another type":   {"ImageListPullJob", pulls(func(s *appsv1beta1.ImageListPullJobSpec) { s.CompletionPolicy.Type = "Soon" }), "Invalid " + images + "completionPolicy.type"},
		"ACJ-027 a day": {"ImageListPullJob", pulls(func(s *appsv1beta1.ImageListPullJobSpec) {
			s.CompletionPolicy.ActiveDeadlineSeconds = new(int64(86400))
		}), ""},
		"ACJ-027 more than a day": {"ImageListPullJob", pulls(func(s *appsv1beta1.ImageListPullJobSpec) {
			s.CompletionPolicy.ActiveDeadlineSeconds = new(int64(86401))
		}), "Invalid " + images + "completionPolicy.activeDeadlineSeconds"},
		"ACJ-027 as long as a pull": {"ImageListPullJob", pulls(func(s *appsv1beta1.ImageListPullJobSpec) {
			s.CompletionPolicy.ActiveDeadlineSeconds, s.PullPolicy = new(int64(60)), &appsv1beta1.PullPolicy{TimeoutSeconds: new(int32(60))}
		}), ""},
		"ACJ-027 shorter than a pull": {"ImageListPullJob", pulls(func(s *appsv1beta1.ImageListPullJobSpec) {
			s.CompletionPolicy.ActiveDeadlineSeconds, s.PullPolicy = new(int64(59)), &appsv1beta1.PullPolicy{TimeoutSeconds: new(int32(60))}
		}), "Invalid " + images + "completionPolicy.activeDeadlineSeconds"},
		"ACJ-027 a TTL": {"ImageListPullJob", pulls(func(s *appsv1beta1.ImageListPullJobSpec) { s.CompletionPolicy.TTLSecondsAfterFinished = new(int32(5)) }), "Forbidden " + images + "completionPolicy.ttlSecondsAfterFinished"},
		"all faults at once": {"ImageListPullJob", func(c *cron) {
			c.Name = ""
			schedules("x")(c)
			zoned("x")(c)
			Policy("Allow")(c)
			c.Spec.Template.ImageListPullJobTemplate.Spec.Images = nil
		},
			"Invalid metadata.name, Invalid spec.concurrencyPolicy, Invalid spec.schedule, Invalid " + images + "images, Invalid spec.timeZone"},
	} {
		cronJob := CronJob(test.kind, "0 3 * * *", Policy("Forbid"), test.change)
		errs := Validate(cronJob, nil, func(job *appsv1beta1.BroadcastJob) field.ErrorList {
			if job.Spec.Paused {
				return field.ErrorList{field.Forbidden(field.NewPath("spec", "paused"), "not here")}
			}
			return nil
		})
		if got := faults(errs); got != test.want {
			t.Errorf("%s: faults: got %q, want %q\n%v", name, got, test.want, errs)
		}
		for _, err := range errs {
			if err.Detail == "" && err.Type != field.ErrorTypeNotSupported {
				t.Errorf("%s: %v says no rule", name, err)
			}
		}
	}
}

func numbered(n int) (images []string) {
	for i := range n {
		images = append(images, fmt.Sprint("image", i))
	}
	return images
}

// ACJ-028: what an update may change, and what not; what was wrong before does not refuse it.
func TestValidateUpdate(t *testing.T) {
	for _, kind := range Kinds {
		for name, test := range map[string]struct {
			change func(*cron)
			want   string
		}{
			"nothing":  {func(*cron) {}, ""},
			"schedule": {schedules("@daily"), ""},
			"timeZone": {zoned("Europe/Berlin"), ""},
			"policy":   {Policy("Replace"), ""},
			"paused":   {func(c *cron) { c.Spec.Paused = new(true) }, ""},
			"deadline": {Deadline(3), ""},
			"limits": {func(c *cron) {
				c.Spec.SuccessfulJobsHistoryLimit, c.Spec.FailedJobsHistoryLimit = new(int32(9)), new(int32(9))
			}, ""},
			"a wrong one":      {schedules("x"), "Invalid spec.schedule"},
			"labels of itself": {func(c *cron) { c.Labels = map[string]string{"a": "b"} }, ""},
			"the template": {func(c *cron) {
				switch template := &c.Spec.Template; kind {
				case Job:
					template.JobTemplate.Spec.Template.Spec.Containers[0].Image = "j"
				case BroadcastJob:
					template.BroadcastJobTemplate.Spec.Parallelism = new(intstr.FromInt32(3))
				case ImageListPullJob:
					template.ImageListPullJobTemplate.Spec.Images = []string{"j"}
				}
			}, map[bool]string{false: "Forbidden spec"}[kind == ImageListPullJob]},
			"its metadata": {func(c *cron) {
				switch template := &c.Spec.Template; kind {
				case Job:
					template.JobTemplate.Labels = map[string]string{"a": "b"}
				case BroadcastJob:
					template.BroadcastJobTemplate.Metadata.Labels = nil
				case ImageListPullJob:
					template.ImageListPullJobTemplate.Metadata.Labels = nil
				}
			}, map[bool]string{false: "Forbidden spec"}[kind == ImageListPullJob]},
			"the kind": {func(c *cron) {
				c.Spec.Template = CronJob(string(Kinds[(slices.Index(Kinds, kind)+1)%3]), "").Spec.Template
			}, "Forbidden spec"},
		} {
			old := CronJob(string(kind), "@hourly", Policy("Forbid"))
			updated := old.DeepCopy()
			test.change(updated)
			errs := Validate(updated, old, nil)
			if got := faults(errs); got != test.want {
				t.Errorf("%s of %s: %s", name, kind, got)
			}
			if strings.HasPrefix(test.want, "Forbidden") {
				for _, allowed := range []string{"schedule", "timeZone", "concurrencyPolicy", "paused", "startingDeadlineSeconds", "successfulJobsHistoryLimit",
					"failedJobsHistoryLimit", "template.imageListPullJobTemplate"} {
					if !strings.Contains(errs[0].Detail, allowed) {
						t.Errorf("%s is not named: %s", allowed, errs[0].Detail)
					}
				}
			}
		}
	}
	stored := CronJob("Job", "x", Deadline(-1))
	paused := stored.DeepCopy()
	paused.Spec.Paused = new(true)
	if errs := Validate(paused, stored, nil); len(errs) > 0 {
		t.Errorf("it cannot be paused: %v", errs)
	}
	paused.Spec.FailedJobsHistoryLimit = new(int32(-1))
	if got := faults(Validate(paused, stored, nil)); got != "Invalid spec.failedJobsHistoryLimit" {
		t.Errorf("faults: got %q, want %q", got, "Invalid spec.failedJobsHistoryLimit")
	}
}

// ACJ-033 (part), ACJ-121 (part): what users are warned of.
func TestWarnings(t *testing.T) {
	never := CronJob("BroadcastJob", "@hourly", Policy("Forbid"))
	never.Spec.Template.BroadcastJobTemplate.Spec.CompletionPolicy.Type = appsv1beta1.CompletionNever
	if got := Warnings(never, nil, nil); len(got) != 1 {
		t.Errorf("ACJ-033: number of results: got %d, want 1\n%v", len(got), got)
	} else if !strings.Contains(got[0], "Forbid") {
		t.Errorf("ACJ-033: first result: got %q, want it to contain %q\n%v", got[0], "Forbid", got)
	}
	never.Spec.ConcurrencyPolicy = "Allow"
	if got := Warnings(never, nil, []string{"X"}); len(got) != 0 {
		t.Errorf("ACJ-033: %v", got)
	}
	list := CronJob("ImageListPullJob", "@hourly")
	if got := Warnings(list, nil, []string{"KruiseDaemon"}); len(got) != 1 {
		t.Errorf("ACJ-121: number of results: got %d, want 1\n%v", len(got), got)
	} else if !strings.Contains(got[0], "KruiseDaemon") {
		t.Errorf("ACJ-121: first result: got %q, want it to contain %q\n%v", got[0], "KruiseDaemon", got)
	}
	if got := append(Warnings(list, list, []string{"KruiseDaemon"}), Warnings(list, nil, nil)...); len(got) != 0 {
		t.Errorf("ACJ-121: %v", got)
	}
}

func object(t *testing.T, text string) Document {
	t.Helper()
	var o Document
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// ACJ-011, ACJ-013: the defaults; only what is missing is added. ACJ-012 (part): pod templates are completed,
// and nothing else of embedded jobs.
func TestDefaults(t *testing.T) {
	nothing := func(string) podtemplate.Request { return podtemplate.Request{} }
	completes := func(string) podtemplate.Request {
		return podtemplate.Request{Complete: func(template Document) (Document, error) {
			spec := maps.Clone(template["spec"].(Document))
			spec["dnsPolicy"] = "ClusterFirst"
			return Document{"spec": spec}, nil
		}}
	}
	const all = `paused: false, successfulJobsHistoryLimit: 3, failedJobsHistoryLimit: 1`
	for name, test := range map[string]struct {
		given, want string
		pods        func(string) podtemplate.Request
	}{
		"ACJ-011 Job": {"{spec: {schedule: x, template: {jobTemplate: {}}}}", "{spec: {schedule: x, template: {jobTemplate: {}}, concurrencyPolicy: Allow, " + all + "}}", nothing},
		"ACJ-011 what is there stays": {"{spec: {paused: true, successfulJobsHistoryLimit: 0, failedJobsHistoryLimit: 0, concurrencyPolicy: Forbid, template: {imageListPullJobTemplate: {spec: {completionPolicy: {type: Never}, pullPolicy: {timeoutSeconds: 1, backoffLimit: 0}, imagePullPolicy: Always}}}}}",
			"{spec: {paused: true, successfulJobsHistoryLimit: 0, failedJobsHistoryLimit: 0, concurrencyPolicy: Forbid, template: {imageListPullJobTemplate: {spec: {completionPolicy: {type: Never}, pullPolicy: {timeoutSeconds: 1, backoffLimit: 0}, imagePullPolicy: Always}}}}}", nothing},
		"ACJ-013 ImageListPullJob": {"{spec: {template: {imageListPullJobTemplate: {spec: {images: [a]}}}}}",
			"{spec: {template: {imageListPullJobTemplate: {spec: {images: [a], completionPolicy: {type: Always}, pullPolicy: {timeoutSeconds: 600, backoffLimit: 3}, imagePullPolicy: IfNotPresent}}}, concurrencyPolicy: Replace, " + all + "}}", nothing},
		"ACJ-013 each when absent": {"{spec: {template: {imageListPullJobTemplate: {spec: {completionPolicy: {type: Always, activeDeadlineSeconds: 900}, pullPolicy: {backoffLimit: 1}}}}}}",
			"{spec: {template: {imageListPullJobTemplate: {spec: {completionPolicy: {type: Always, activeDeadlineSeconds: 900}, pullPolicy: {timeoutSeconds: 600, backoffLimit: 1}, imagePullPolicy: IfNotPresent}}}, concurrencyPolicy: Replace, " + all + "}}", nothing},
		"ACJ-012 pods of a Job": {"{spec: {template: {jobTemplate: {spec: {template: {spec: {containers: [{name: c}]}}}}}}}",
			"{spec: {template: {jobTemplate: {spec: {template: {spec: {containers: [{name: c, imagePullPolicy: Always}], dnsPolicy: ClusterFirst}}}}}, concurrencyPolicy: Allow, " + all + "}}", completes},
		"ACJ-012 pods of a BroadcastJob": {"{spec: {template: {broadcastJobTemplate: {spec: {template: {spec: {containers: [{name: c}]}}}}}}}",
			"{spec: {template: {broadcastJobTemplate: {spec: {template: {spec: {containers: [{name: c, imagePullPolicy: Always}], dnsPolicy: ClusterFirst}}}}}, concurrencyPolicy: Allow, " + all + "}}", completes},
		"ACJ-012 not with the gate": {"{spec: {template: {broadcastJobTemplate: {spec: {template: {spec: {containers: [{name: c}]}}}}}}}",
			"{spec: {template: {broadcastJobTemplate: {spec: {template: {spec: {containers: [{name: c}]}}}}}, concurrencyPolicy: Allow, " + all + "}}", nothing},
		"ACJ-111 the annotation of v1alpha1 is not stored": {`{metadata: {annotations: {apps.kruise.io/v1beta1-imagelistpulljob-template: "{}", a: b}}}`, `{metadata: {annotations: {a: b}}}`, nothing},
		"no object": {"{spec: 5}", "{spec: 5}", nothing},
	} {
		given := object(t, test.given)
		operations, err := Default(given, nil, test.pods)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(object(t, test.want), Patched(t, given, operations)); diff != "" {
			t.Errorf("%s: defaulted object (-want +got):\n%s", name, diff)
		}
	}
	failing := func(string) podtemplate.Request {
		return podtemplate.Request{Complete: func(Document) (Document, error) { return nil, fmt.Errorf("away") }}
	}
	if operations, err := Default(object(t, "{spec: {template: {jobTemplate: {spec: {template: {spec: {}}}}}}}"), nil, failing); err == nil {
		t.Errorf("an error comes with the other defaults: error: got nil, want an error\n%v", operations)
	} else if len(operations) != 4 {
		t.Errorf("an error comes with the other defaults: number of operations: got %d, want 4\n%v\n%v",
			len(operations), operations, err)
	}
	// The job that is created has the defaults of its own kind: nothing differs from an ImageListPullJob of
	// the user.
	if got := imagepull.DefaultJob(object(t, "{spec: {images: [a], completionPolicy: {type: Always}, pullPolicy: {timeoutSeconds: 600, backoffLimit: 3}}}"), true, true); len(got) != 0 {
		t.Errorf("number of results: got %d, want 0\n%v", len(got), got)
	}
}
