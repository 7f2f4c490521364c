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

// probeName is the name of objects that are created as a dry run.
const probeName = "afloat-takeover-probe"

// answers creates an object as a dry run that both configurations are about. It returns what is missing if
// the webhooks do not answer.
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

// failedCall matches the message of an API server about a webhook that did not answer.
var failedCall = regexp.MustCompile(`failed calling webhook "([^"]*)"|conversion webhook for .* failed`)

// unanswered returns a description if the answer to a request means that a webhook of either manager did not
// answer. Any other answer means that ours did, or was not needed, including a rejection by a policy, a
// quota, or a foreign webhook that does not support dry runs. A foreign webhook that does not answer is no
// reason to wait, because nothing here can repair it.
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
