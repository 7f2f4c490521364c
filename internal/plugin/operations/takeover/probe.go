package takeover

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// probeName is the name of what is created as a dry run.
const probeName = "afloat-takeover-probe"

// answers tells whether webhooks are answered: an object that both configurations are about is created as a
// dry run.
func (t *takeover) answers(ctx context.Context) (string, error) {
	definition, err := installation.Get(ctx, t.client, installation.Definitions, "",
		"clonesets.apps.kruise.io")
	if err != nil || definition == nil {
		return "there is no definition of CloneSets", err
	}
	probe := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "default", "name": probeName},
		"spec": map[string]any{"replicas": int64(0),
			"selector": map[string]any{"matchLabels": map[string]any{"app": probeName}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": probeName}},
				"spec": map[string]any{"containers": []any{map[string]any{"name": "probe",
					"image": "probe"}}}}}}}
	probe.SetGroupVersionKind(installation.StoredKind(definition))
	return t.unanswered(ctx, t.client.Create(ctx, probe, client.DryRunAll))
}

// failedCall is how an API server says that a webhook did not answer, and which one.
var failedCall = regexp.MustCompile(`failed calling webhook "([^"]*)"|conversion webhook for .* failed`)

// unanswered tells whether the answer to a request means that a webhook of ours or theirs did not answer. Any
// other answer, also a refusal by a policy, a quota, or a webhook of others that does not know dry runs,
// means that ours did, or need not. A webhook of others that does not answer is no reason to wait: nothing
// here mends it.
func (t *takeover) unanswered(ctx context.Context, answer error) (string, error) {
	var status apierrors.APIStatus
	if answer == nil {
		return "", nil
	}
	if !errors.As(answer, &status) {
		return "", fmt.Errorf("asking by a dry run: %w", answer)
	}
	if failed := failedCall.FindStringSubmatch(answer.Error()); failed != nil {
		if failed[1] == "" {
			return answer.Error(), nil
		}
		for _, c := range configurations {
			configuration, err := installation.Get(ctx, t.client, c.kind, "", c.name)
			if err != nil {
				return "", err
			}
			for _, entry := range installation.Entries(configuration) {
				if installation.Text(entry, "name") == failed[1] {
					return answer.Error(), nil
				}
			}
		}
		if !t.foreign {
			t.foreign = true
			t.say("a webhook of others does not answer, which is not waited for: %v", answer)
		}
		return "", nil
	}
	if apierrors.IsTimeout(answer) || apierrors.IsServerTimeout(answer) ||
		apierrors.IsServiceUnavailable(answer) || apierrors.IsTooManyRequests(answer) {
		return answer.Error(), nil
	}
	return "", nil
}
