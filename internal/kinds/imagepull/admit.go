package imagepull

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/go-openapi/jsonpointer"
	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/fieldcheck"
	"github.com/afloat-project/afloat/internal/engine/imageref"
)

// Document is a JSON object as it is in an admission request.
type Document = map[string]any

// Defaults and limits.
const (
	defaultTimeout = 600
	defaultBackoff = 3
	maxListed      = 255 // images of an ImageListPullJob
	maxTold        = 20  // errors reported for a NodeImage, which may have thousands of tags
)

type patch struct{ operations []jsonpatch.Operation }

func (p *patch) set(op, path string, value any) {
	p.operations = append(p.operations, jsonpatch.NewOperation(op, path, value))
}

// add adds a field unless it is set; null and "" count as not set.
func (p *patch) add(object Document, at, key string, value any) {
	if present, ok := object[key]; !ok || present == nil || present == "" {
		p.set("add", at+"/"+jsonpointer.Escape(key), value)
	}
}

// DefaultJob defaults an ImagePullJob (IMG-031, IMG-032), or the same fields of an ImageListPullJob
// (IMG-045).
func DefaultJob(job Document, list, create bool) []jsonpatch.Operation {
	var p patch
	spec, ok := job["spec"].(Document)
	if !ok {
		return nil // rejected by the schema
	}
	if policy, ok := spec["completionPolicy"].(Document); ok {
		p.add(policy, "/spec/completionPolicy", "type", string(appsv1beta1.CompletionAlways))
	} else {
		p.add(spec, "/spec", "completionPolicy", Document{"type": string(appsv1beta1.CompletionAlways)})
	}

	timeout := int64(defaultTimeout)
	if completion, _ := spec["completionPolicy"].(Document); completion["type"] !=
		string(appsv1beta1.CompletionNever) {
		if deadline, ok := completion["activeDeadlineSeconds"].(json.Number); ok {
			if seconds, err := deadline.Int64(); err == nil && seconds > 0 {
				timeout = min(timeout, seconds) // a pull gets no more time than its job
			}
		}
	}

	if policy, ok := spec["pullPolicy"].(Document); ok {
		p.add(policy, "/spec/pullPolicy", "timeoutSeconds", timeout)
		p.add(policy, "/spec/pullPolicy", "backoffLimit", defaultBackoff)
	} else {
		p.add(spec, "/spec", "pullPolicy",
			Document{"timeoutSeconds": timeout, "backoffLimit": defaultBackoff})
	}

	if list {
		return p.operations
	}

	p.add(spec, "/spec", "imagePullPolicy", string(appsv1beta1.PullIfNotPresent))
	if metadata, ok := job["metadata"].(Document); ok && create {
		finalizers, _ := metadata["finalizers"].([]any)
		switch {
		case len(finalizers) == 0:
			p.set("add", "/metadata/finalizers", []string{pub.PullJobProtection})
		case !slices.Contains(finalizers, any(pub.PullJobProtection)):
			p.set("add", "/metadata/finalizers/-", pub.PullJobProtection)
		}
	}

	return p.operations
}

// DefaultNodeImage defaults the tags of a NodeImage and sorts them (IMG-021, IMG-022).
func DefaultNodeImage(node Document, now time.Time) []jsonpatch.Operation {
	var p patch
	spec, _ := node["spec"].(Document)
	images, _ := spec["images"].(Document)

	for _, name := range slices.Sorted(maps.Keys(images)) {
		image, _ := images[name].(Document)
		tags, _ := image["tags"].([]any)
		completed, changed := make([]any, 0, len(tags)), false

		for _, item := range tags {
			tag, ok := item.(Document)
			if !ok {
				completed = append(completed, item)
				continue
			}

			tag = maps.Clone(tag)
			policy, _ := tag["pullPolicy"].(Document)
			if policy = maps.Clone(policy); policy == nil {
				policy = Document{}
			}

			fill := func(object Document, key string, value any) {
				if present, ok := object[key]; !ok || present == nil || present == "" {
					object[key], changed = value, true
				}
			}
			fill(tag, "createdAt", now.UTC().Format(time.RFC3339))
			fill(policy, "timeoutSeconds", defaultTimeout)
			fill(policy, "backoffLimit", defaultBackoff)
			if limit, ok := policy["backoffLimit"].(json.Number); ok &&
				strings.HasPrefix(limit.String(), "-") {
				policy["backoffLimit"], changed = defaultBackoff, true
			}

			fill(tag, "imagePullPolicy", string(appsv1beta1.PullIfNotPresent))
			tag["pullPolicy"] = policy
			completed = append(completed, tag)
		}

		if sortTags(completed) || changed {
			p.set("replace", "/spec/images/"+jsonpointer.Escape(name)+"/tags", completed)
		}
	}

	status, _ := node["status"].(Document)
	statuses, _ := status["imageStatuses"].(Document)
	for _, name := range slices.Sorted(maps.Keys(statuses)) {
		image, _ := statuses[name].(Document)
		tags, _ := image["tags"].([]any)
		if tags = slices.Clone(tags); sortTags(tags) {
			p.set("replace", "/status/imageStatuses/"+jsonpointer.Escape(name)+"/tags", tags)
		}
	}

	return p.operations
}

// sortTags sorts by tag and reports whether the order changed.
func sortTags(tags []any) bool {
	compare := func(a, b any) int {
		left, _ := a.(Document)
		right, _ := b.(Document)
		x, _ := left["tag"].(string)
		y, _ := right["tag"].(string)
		return strings.Compare(x, y)
	}
	if slices.IsSortedFunc(tags, compare) {
		return false
	}

	slices.SortStableFunc(tags, compare)
	return true
}

// CheckNodeImage validates a NodeImage (IMG-023 to IMG-026). old is nil on create. What old has is not
// validated again, so that an object that an older release stored without validation does not block the jobs
// of its node.
func CheckNodeImage(node, old *appsv1beta1.NodeImage) error {
	if old == nil {
		old = &appsv1beta1.NodeImage{}
	}
	if n := len(node.Spec.Images); n > max(maxImages, len(old.Spec.Images)) {
		return fmt.Errorf("spec.images has %d entries, at most %d are allowed", n, maxImages)
	}

	var errs []error
	for _, name := range slices.Sorted(maps.Keys(node.Spec.Images)) {
		stored, had := old.Spec.Images[name]
		switch {
		case name == "":
			errs = append(errs, fmt.Errorf("spec.images: the name of an image is empty"))
		case !had:
			if err := checkName(name); err != nil {
				errs = append(errs, fmt.Errorf("spec.images: %w", err))
			}
		}

		seen := map[string]bool{}
		for i, tag := range node.Spec.Images[name].Tags {
			at := fmt.Sprintf("spec.images[%s].tags[%d]", name, i)
			switch {
			case tag.Tag == "":
				errs = append(errs, fmt.Errorf("%s: image %s has an empty tag", at, name))
			case seen[tag.Tag]:
				errs = append(errs, fmt.Errorf("%s: %s:%s is listed twice", at, name, tag.Tag))
			}
			seen[tag.Tag] = true
			if !slices.ContainsFunc(stored.Tags,
				func(t appsv1beta1.ImageTagSpec) bool { return equality.Semantic.DeepEqual(t, tag) }) {
				for _, err := range checkTag(&tag) {
					errs = append(errs, fmt.Errorf("%s of %s:%s: %w", at, name, tag.Tag, err))
				}
			}
		}

		if n := len(errs) - maxTold; n > 0 {
			errs = append(errs[:maxTold:maxTold], fmt.Errorf("and more"))
			break
		}
	}

	return utilerrors.NewAggregate(errs)
}

func checkName(name string) error {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return fmt.Errorf("%q is no name of an image, such as docker.io/library/nginx: %w", name, err)
	}
	if !reference.IsNameOnly(named) {
		return fmt.Errorf("%q has a tag or digest, which belongs into tags", name)
	}
	return nil
}

func checkTag(tag *appsv1beta1.ImageTagSpec) []error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if tag.CreatedAt == nil {
		refuse("createdAt is missing")
	}
	if tag.Version < 0 {
		refuse("version must not be negative, it is %d", tag.Version)
	}

	notNegative := func(field string, seconds int64) {
		if seconds < 0 {
			refuse("pullPolicy.%s must not be negative, it is %d", field, seconds)
		}
	}
	if p := tag.PullPolicy; p == nil {
		refuse("pullPolicy is missing: its ttlSecondsAfterFinished says when the tag is forgotten")
	} else {
		if p.TTLSecondsAfterFinished == nil {
			refuse("pullPolicy.ttlSecondsAfterFinished is missing: it says when the tag is forgotten")
		} else {
			notNegative("ttlSecondsAfterFinished", int64(*p.TTLSecondsAfterFinished))
		}
		if p.TimeoutSeconds != nil {
			notNegative("timeoutSeconds", int64(*p.TimeoutSeconds))
		}
		if p.ActiveDeadlineSeconds != nil {
			notNegative("activeDeadlineSeconds", *p.ActiveDeadlineSeconds)
		}
	}

	if err := checkPullPolicy(tag.ImagePullPolicy); err != nil {
		errs = append(errs, err)
	}

	return errs
}

func checkPullPolicy(policy appsv1beta1.ImagePullPolicy) error {
	switch policy {
	case "", appsv1beta1.PullAlways, appsv1beta1.PullIfNotPresent:
		return nil
	}
	return fmt.Errorf("imagePullPolicy %q is neither %s nor %s",
		policy, appsv1beta1.PullAlways, appsv1beta1.PullIfNotPresent)
}

// CheckJob validates an ImagePullJob (IMG-033 to IMG-040) and returns all errors. old is nil on create;
// errors that old has are not reported again.
func CheckJob(job, old *appsv1beta1.ImagePullJob) error {
	errs := checkJob(job)
	if old != nil {
		errs = fresh(errs, checkJob(old))
		if !slices.Equal(job.Spec.PullSecrets, old.Spec.PullSecrets) {
			errs = append(errs, fmt.Errorf("spec.pullSecrets is immutable: create another job"))
		}
	}
	return utilerrors.NewAggregate(errs)
}

func checkJob(job *appsv1beta1.ImagePullJob) []error {
	errs := checkTemplate(&job.Spec.ImagePullJobTemplate)
	if _, _, err := imageref.Parse(job.Spec.Image); err != nil {
		errs = append(errs, fmt.Errorf("spec.image: %w", err))
	}

	completion, pull := &job.Spec.CompletionPolicy, job.Spec.PullPolicy
	if completion.Type == appsv1beta1.CompletionAlways && completion.ActiveDeadlineSeconds != nil &&
		pull != nil && pull.TimeoutSeconds != nil &&
		*completion.ActiveDeadlineSeconds < int64(*pull.TimeoutSeconds) {
		errs = append(errs, fmt.Errorf(
			"spec.completionPolicy.activeDeadlineSeconds (%d) must be greater than spec.pullPolicy.timeoutSeconds (%d), or equal to it",
			*completion.ActiveDeadlineSeconds, *pull.TimeoutSeconds,
		))
	}

	return errs
}

// fresh returns the errors that are not among the earlier ones.
func fresh(errs, before []error) []error {
	known := make(map[string]bool, len(before))
	for _, err := range before {
		known[err.Error()] = true
	}
	return slices.DeleteFunc(errs, func(err error) bool { return known[err.Error()] })
}

// CheckList validates an ImageListPullJob (IMG-045, IMG-046) and returns all errors. old is nil on create;
// errors that old has are not reported again.
func CheckList(list, old *appsv1beta1.ImageListPullJob) error {
	errs := checkList(list)
	if old != nil {
		errs = fresh(errs, checkList(old))
	}
	return utilerrors.NewAggregate(errs)
}

func checkList(list *appsv1beta1.ImageListPullJob) []error {
	errs := checkTemplate(&list.Spec.ImagePullJobTemplate)
	switch n := len(list.Spec.Images); {
	case n == 0:
		return append(errs, fmt.Errorf("spec.images: image can not be empty: name at least one"))
	case n > maxListed:
		return append(errs, fmt.Errorf("spec.images has %d entries, at most %d are allowed", n, maxListed))
	}

	seen := map[string]string{}
	for i, image := range list.Spec.Images {
		name, tag, err := imageref.Parse(image)
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.images[%d]: %w", i, err))
			continue
		}
		full := imageref.Full(name, tag)
		if first, ok := seen[full]; ok {
			errs = append(errs, fmt.Errorf("spec.images[%d]: %q is the same image as %q", i, image, first))
			continue
		}
		seen[full] = image
	}

	return errs
}

func checkTemplate(t *appsv1beta1.ImagePullJobTemplate) []error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s := t.Selector; s != nil {
		if t.PodSelector != nil {
			refuse(
				"spec.selector and spec.podSelector exclude each other: nodes are selected by themselves or by their pods",
			)
		}
		if len(s.Names) > 0 && (len(s.MatchLabels) > 0 || len(s.MatchExpressions) > 0) {
			refuse("spec.selector.names excludes matchLabels and matchExpressions")
		}
		names := slices.Sorted(slices.Values(s.Names))
		if len(slices.Compact(names)) < len(s.Names) {
			refuse("spec.selector.names has a name twice: name each node once")
		}
		if _, err := metav1.LabelSelectorAsSelector(&s.LabelSelector); err != nil {
			refuse("spec.selector: %w", err)
		}
		if n := fieldcheck.SelectorTerms(&s.LabelSelector); n > fieldcheck.MostSelectorTerms {
			refuse("spec.selector has %d labels and values, at most %d are allowed: list nodes in names",
				n, fieldcheck.MostSelectorTerms)
		}
	}

	if s := t.PodSelector; s != nil {
		if _, err := metav1.LabelSelectorAsSelector(&s.LabelSelector); err != nil {
			refuse("spec.podSelector: %w", err)
		}
		if n := fieldcheck.SelectorTerms(&s.LabelSelector); n > fieldcheck.MostSelectorTerms {
			refuse("spec.podSelector has %d labels and values, at most %d are allowed",
				n, fieldcheck.MostSelectorTerms)
		}
	}

	if _, err := parallelism(t.Parallelism); err != nil {
		refuse("spec.parallelism: %w", err)
	}
	if err := checkPullPolicy(t.ImagePullPolicy); err != nil {
		refuse("spec.%w", err)
	}

	if size := sandboxSize(t.SandboxConfig); size > pub.MaxPullSandboxBytes {
		refuse(
			"spec.sandboxConfig has %d bytes of labels and annotations, at most %d are allowed: each node gets them",
			size, pub.MaxPullSandboxBytes,
		)
	}

	for _, key := range keysOfRuntimes(t.SandboxConfig) {
		refuse(
			"spec.sandboxConfig: %s is a key of container runtimes, which jobs must not set: use a name without dots, or a prefix of your own",
			key,
		)
	}

	for _, name := range SecretsOf(t) {
		if err := imageref.CheckSecretName(name); err != nil {
			refuse("spec.pullSecrets: %q is no name of a secret in the namespace of the job: %w", name, err)
		}
	}

	if n := len(SecretsOf(t)); n > pub.MaxPullSecrets {
		refuse(
			"spec.pullSecrets has %d names, at most %d are allowed: a secret can have the credentials of many registries",
			n, pub.MaxPullSecrets,
		)
	}

	if deadline := t.CompletionPolicy.ActiveDeadlineSeconds; deadline != nil && *deadline < 0 {
		refuse("spec.completionPolicy.activeDeadlineSeconds must not be negative, it is %d", *deadline)
	}

	switch t.CompletionPolicy.Type {
	case appsv1beta1.CompletionAlways, "":
	case appsv1beta1.CompletionNever:
		if t.CompletionPolicy.ActiveDeadlineSeconds != nil ||
			t.CompletionPolicy.TTLSecondsAfterFinished != nil {
			refuse(
				"spec.completionPolicy: activeDeadlineSeconds and ttlSecondsAfterFinished can not be set with type %s: such a job does not end",
				appsv1beta1.CompletionNever,
			)
		}
	default:
		refuse("spec.completionPolicy.type %q is neither %s nor %s",
			t.CompletionPolicy.Type, appsv1beta1.CompletionAlways, appsv1beta1.CompletionNever)
	}

	return errs
}

// parallelism returns the number of nodes that pull at a time.
func parallelism(value *intstr.IntOrString) (int, error) {
	if value == nil {
		return 1, nil
	}

	n := value.IntValue()
	if value.Type == intstr.String {
		if strings.HasSuffix(value.StrVal, "%") {
			return 0, fmt.Errorf("does not support percentage value %s: give a number of nodes", value.StrVal)
		}
		var err error
		if n, err = strconv.Atoi(value.StrVal); err != nil {
			return 0, fmt.Errorf("%q is no number of nodes", value.StrVal)
		}
	}

	if n < 0 {
		return 0, fmt.Errorf("%d is negative", n)
	}

	return n, nil
}
