package framework

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Document is a decoded JSON object.
type Document = map[string]any

// TemplateValidator has the API server validate and default a pod template.
type TemplateValidator interface {
	// Complete returns the pod template, of a workload with these claim templates, with the API server's
	// defaults and without fields that the API server does not know.
	Complete(ctx context.Context, namespace string, template Document, claims []string) (Document, error)
	// Judge returns why the pod template is invalid in a workload with these claim templates, with fields
	// below spec, or nothing if it is valid. An error means that the API server did not decide.
	Judge(ctx context.Context, namespace string, template Document,
		claims []string) ([]metav1.StatusCause, error)
}

// +kubebuilder:rbac:groups="",resources=podtemplates,verbs=create

// dryRun creates a core/v1 PodTemplate in a dry run, so that exactly the rules of the cluster's version
// apply, without the policies for pods. The template is sent as it was written.
type dryRun struct {
	core    rest.Interface
	timeout time.Duration
}

// NewTemplateValidator returns a validator that uses core, a client for group version v1.
func NewTemplateValidator(core rest.Interface) TemplateValidator {
	return &dryRun{core: core, timeout: 5 * time.Second}
}

// CompleteTemplate returns a function that defaults a pod template that stands alone. A template that the API
// server finds invalid is returned unchanged.
func CompleteTemplate(
	judge TemplateValidator,
) func(ctx context.Context, namespace string, template []byte) ([]byte, error) {
	return func(ctx context.Context, namespace string, template []byte) ([]byte, error) {
		given, err := DecodeDocument(template)
		if err != nil {
			return nil, fmt.Errorf("reading a pod template: %w", err)
		}

		complete, err := judge.Complete(ctx, namespace, given, nil)
		switch {
		case refusal(err): // a quota or policy for PodTemplates does not concern the template
			return template, nil
		case err != nil:
			return nil, err
		}

		return json.Marshal(complete)
	}
}

func (d *dryRun) create(ctx context.Context, namespace string, template Document) ([]byte, error) {
	body, err := json.Marshal(Document{
		"apiVersion": "v1",
		"kind":       "PodTemplate",
		"metadata":   Document{"generateName": "afloat-dry-run-", "namespace": namespace},
		"template":   template,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the pod template: %w", err)
	}

	result := d.core.Post().Namespace(namespace).Resource("podtemplates").
		Param("dryRun", metav1.DryRunAll).Param("fieldValidation", metav1.FieldValidationIgnore).
		SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").
		Timeout(d.timeout).Body(body).Do(ctx)
	if err := result.Error(); err != nil { // Raw would not return the details
		return nil, err
	}

	return result.Raw()
}

func (d *dryRun) Complete(
	ctx context.Context, namespace string, template Document, claims []string,
) (Document, error) {
	// Without placeholders, a template that mounts a claim would be rejected and not defaulted.
	completed, placed := withClaims(template, claims)
	answer, err := d.create(ctx, namespace, completed)
	if err != nil {
		return nil, err
	}

	doc, err := DecodeDocument(answer)
	if err != nil {
		return nil, fmt.Errorf("reading the completed pod template: %w", err)
	}

	complete, ok := doc["template"].(Document)
	if !ok {
		return nil, errors.New("the API server answered without a pod template")
	}

	placed.takeFrom(complete)
	return complete, nil
}

func (d *dryRun) Judge(
	ctx context.Context, namespace string, template Document, claims []string,
) ([]metav1.StatusCause, error) {
	placed, volumes := withClaims(template, claims)
	_, err := d.create(ctx, namespace, placed)
	if err == nil {
		return nil, nil
	}
	if !refusal(err) {
		return nil, err
	}

	var status apierrors.APIStatus
	errors.As(err, &status)
	answer := status.Status()
	if answer.Code == http.StatusBadRequest {
		answer.Details = nil // the document does not fit the server's types
	}

	return templateCauses(answer, volumes), nil
}

// refusal reports whether the API server itself found the template invalid: it names fields, or states that
// the document does not fit its types. Answers of policies, quotas and other webhooks about a PodTemplate do
// not count, because these see the pods themselves. A ValidatingAdmissionPolicy also answers Invalid, but
// with a cause that names no field. Errors without an answer of the API server do not count either.
func refusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || strings.HasPrefix(status.Status().Message, "admission webhook ") {
		return false
	}

	answer := status.Status()
	var causes []metav1.StatusCause
	if answer.Details != nil {
		causes = answer.Details.Causes
	}

	switch answer.Code {
	case http.StatusUnprocessableEntity:
		return answer.Reason == metav1.StatusReasonInvalid &&
			(len(causes) == 0 ||
				slices.ContainsFunc(causes, func(c metav1.StatusCause) bool { return c.Field != "" }))
	case http.StatusBadRequest:
		return !slices.ContainsFunc(causes,
			func(c metav1.StatusCause) bool { return c.Type == metav1.CauseTypeUnexpectedServerResponse })
	}

	return false
}

// placedClaims records where withClaims put the placeholders.
type placedClaims struct {
	// first is the index of the first placeholder among the volumes; index maps placeholders to their claim
	// templates.
	first int
	index []int
}

// withClaims returns the template with a placeholder volume for each claim template. Names that are empty,
// repeated or names of volumes are skipped: they are errors of the claim templates, and reported there.
func withClaims(template Document, claims []string) (Document, placedClaims) {
	spec, ok := template["spec"].(Document)
	if !ok {
		return template, placedClaims{}
	}

	volumes, ok := spec["volumes"].([]any)
	if !ok && spec["volumes"] != nil {
		return template, placedClaims{}
	}

	taken := map[string]bool{"": true}
	for _, item := range volumes {
		volume, _ := item.(Document)
		name, _ := volume["name"].(string)
		taken[name] = true
	}

	placed := placedClaims{first: len(volumes)}
	all := append([]any{}, volumes...)
	for i, name := range claims {
		if taken[name] {
			continue
		}
		taken[name] = true
		// With this source, the volume may be a block device.
		all = append(all, Document{"name": name, "persistentVolumeClaim": Document{"claimName": name}})
		placed.index = append(placed.index, i)
	}

	if len(placed.index) == 0 {
		return template, placed
	}

	template, spec = maps.Clone(template), maps.Clone(spec)
	template["spec"], spec["volumes"] = spec, all
	return template, placed
}

// takeFrom removes the placeholders from a template that the API server returned.
func (p placedClaims) takeFrom(template Document) {
	spec, _ := template["spec"].(Document)
	volumes, _ := spec["volumes"].([]any)
	if len(p.index) == 0 || len(volumes) != p.first+len(p.index) {
		return
	}
	if p.first == 0 {
		delete(spec, "volumes")
		return
	}
	spec["volumes"] = volumes[:p.first]
}

// templateCauses translates the fields of a PodTemplate into those of the workload.
func templateCauses(answer metav1.Status, placed placedClaims) []metav1.StatusCause {
	if answer.Details == nil || len(answer.Details.Causes) == 0 {
		return []metav1.StatusCause{
			{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.template", Message: answer.Message},
		}
	}

	causes := make([]metav1.StatusCause, 0, len(answer.Details.Causes))
	for _, cause := range answer.Details.Causes {
		if !strings.HasPrefix(cause.Field, "template") {
			cause.Field = "template"
		}

		// The API server drops "metadata" from the path of a template's labels and annotations.
		for _, member := range []string{"labels", "annotations"} {
			if rest, ok := strings.CutPrefix(cause.Field, "template."+member); ok {
				cause.Field = "template.metadata." + member + rest
			}
		}

		cause.Field = "spec." + cause.Field
		if rest, ok := strings.CutPrefix(cause.Field, "spec.template.spec.volumes["); ok {
			number, member, _ := strings.Cut(rest, "]")
			if i, err := strconv.Atoi(number); err == nil && i >= placed.first &&
				i-placed.first < len(placed.index) {
				cause.Field = fmt.Sprintf("spec.volumeClaimTemplates[%d].metadata%s",
					placed.index[i-placed.first], member)
			}
		}

		causes = append(causes, cause)
	}

	return causes
}

// DecodeDocument decodes a JSON object without touching its numbers.
func DecodeDocument(data []byte) (Document, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var doc Document
	if err := decoder.Decode(&doc); err != nil {
		return nil, err
	}
	return doc, nil
}
