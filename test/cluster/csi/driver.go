package main

import (
	"context"
	"errors"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// smallest is the size of a volume if no size is requested.
const smallest = 1 << 20

// failure returns an error with the status code that callers expect.
func failure(err error) error {
	if errors.Is(err, errNone) {
		return status.Error(codes.NotFound, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}

type identity struct {
	csi.UnimplementedIdentityServer
}

// GetPluginInfo returns the name of the driver.
func (identity) GetPluginInfo(context.Context,
	*csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: driverName, VendorVersion: "1"}, nil
}

// GetPluginCapabilities reports that the controller creates volumes, and that they grow while in use.
func (identity) GetPluginCapabilities(context.Context,
	*csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{
			Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}}},
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
			Type: csi.PluginCapability_VolumeExpansion_ONLINE}}},
	}}, nil
}

// Probe reports that the driver is ready.
func (identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

type controller struct {
	csi.UnimplementedControllerServer
	volumes *volumes
}

// ControllerGetCapabilities returns the capabilities of the controller.
func (controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (
	*csi.ControllerGetCapabilitiesResponse, error) {
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, can := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER} {
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: can}}})
	}
	return answer, nil
}

func fileSystems(capabilities ...*csi.VolumeCapability) error {
	for _, c := range capabilities {
		if c.GetMount() == nil {
			return status.Error(codes.InvalidArgument, "volumes are file systems, not block devices")
		}
	}
	return nil
}

// CreateVolume creates a volume of the requested size. With the parameter expansion=offline, the volume does
// not grow while it is in use.
func (c controller) CreateVolume(_ context.Context,
	r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := fileSystems(r.GetVolumeCapabilities()...); err != nil {
		return nil, err
	}
	if !idPattern.MatchString(r.GetName()) {
		return nil, status.Errorf(codes.InvalidArgument, "name %q", r.GetName())
	}

	expansion := r.GetParameters()["expansion"]
	if expansion != "" && expansion != "offline" {
		return nil, status.Errorf(codes.InvalidArgument, "parameter expansion is %q, not offline", expansion)
	}

	asked, limit := max(r.GetCapacityRange().GetRequiredBytes(), smallest),
		r.GetCapacityRange().GetLimitBytes()
	if limit > 0 && limit < asked {
		return nil, status.Errorf(codes.OutOfRange, "limit %d is less than %d", limit, asked)
	}

	c.volumes.mu.Lock()
	defer c.volumes.mu.Unlock()
	have, err := c.volumes.read(r.GetName())
	switch {
	case errors.Is(err, errNone):
		have = record{Size: asked, Offline: expansion == "offline"}
		err = c.volumes.grow(r.GetName(), have)
	case err == nil && (have.Size < asked || limit > 0 && have.Size > limit):
		return nil, status.Errorf(codes.AlreadyExists, "volume %s has size %d", r.GetName(), have.Size)
	}
	if err != nil {
		return nil, failure(err)
	}

	return &csi.CreateVolumeResponse{
		Volume: &csi.Volume{VolumeId: r.GetName(), CapacityBytes: have.Size}}, nil
}

// DeleteVolume removes a volume with its content.
func (c controller) DeleteVolume(_ context.Context,
	r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	c.volumes.mu.Lock()
	defer c.volumes.mu.Unlock()
	_, err := c.volumes.read(r.GetVolumeId())
	if err == nil {
		err = c.volumes.remove(r.GetVolumeId())
	}
	if err != nil && !errors.Is(err, errNone) {
		return nil, failure(err)
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// ValidateVolumeCapabilities confirms all capabilities that CreateVolume would accept.
func (c controller) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (
	*csi.ValidateVolumeCapabilitiesResponse, error) {
	if _, err := c.volumes.read(r.GetVolumeId()); err != nil {
		return nil, failure(err)
	}
	if err := fileSystems(r.GetVolumeCapabilities()...); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
			VolumeCapabilities: r.GetVolumeCapabilities()}}, nil
}

// ControllerExpandVolume grants a size. The node then resizes the file system.
func (c controller) ControllerExpandVolume(_ context.Context, r *csi.ControllerExpandVolumeRequest) (
	*csi.ControllerExpandVolumeResponse, error) {
	id := r.GetVolumeId()
	c.volumes.mu.Lock()
	defer c.volumes.mu.Unlock()
	have, err := c.volumes.read(id)
	if err != nil {
		return nil, failure(err)
	}

	if asked := r.GetCapacityRange().GetRequiredBytes(); asked > have.Size {
		limit, err := c.volumes.limit(id)
		if err != nil {
			return nil, failure(err)
		}
		if asked > limit {
			return nil, status.Errorf(codes.Internal, "volume %s may not grow beyond %d bytes", id, limit)
		}
		have.Size = asked
		if err := c.volumes.write(id, have); err != nil {
			return nil, failure(err)
		}
	}

	return &csi.ControllerExpandVolumeResponse{CapacityBytes: have.Size,
		NodeExpansionRequired: have.Grown < have.Size}, nil
}

type nodeServer struct {
	csi.UnimplementedNodeServer
	volumes *volumes
	name    string
}

// NodeGetInfo returns the name of the node.
func (n nodeServer) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.name}, nil
}

// NodeGetCapabilities returns the capabilities of the node.
func (nodeServer) NodeGetCapabilities(context.Context,
	*csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	answer := &csi.NodeGetCapabilitiesResponse{}
	for _, can := range []csi.NodeServiceCapability_RPC_Type{csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER} {
		answer.Capabilities = append(answer.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: can}}})
	}
	return answer, nil
}

// NodePublishVolume mounts a volume for a pod, with the size that was granted.
func (n nodeServer) NodePublishVolume(_ context.Context,
	r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := fileSystems(r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	n.volumes.mu.Lock()
	defer n.volumes.mu.Unlock()
	if err := n.publish(r.GetVolumeId(), r.GetTargetPath(), r.GetReadonly()); err != nil {
		return nil, failure(err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (n nodeServer) publish(id, target string, readOnly bool) error {
	have, err := n.volumes.read(id)
	if err != nil {
		return err
	}
	// A kubelet calls again for volumes that are mounted already.
	if mounted, err := n.volumes.mounter.Mounted(target); mounted || err != nil {
		return err
	}
	if err := n.volumes.grow(id, have); err != nil {
		return err
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}

	return n.volumes.mounter.Bind(n.volumes.folder(id), target, readOnly)
}

// NodeUnpublishVolume unmounts a volume from a pod.
func (n nodeServer) NodeUnpublishVolume(_ context.Context,
	r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	n.volumes.mu.Lock()
	defer n.volumes.mu.Unlock()
	if err := n.volumes.mounter.Unmount(r.GetTargetPath()); err != nil {
		return nil, failure(err)
	}
	if err := os.Remove(r.GetTargetPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, failure(err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeExpandVolume resizes the file system of a volume in use to the size that was granted.
func (n nodeServer) NodeExpandVolume(_ context.Context,
	r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	n.volumes.mu.Lock()
	defer n.volumes.mu.Unlock()
	have, err := n.volumes.read(r.GetVolumeId())
	if err == nil && have.Grown < have.Size {
		if have.Offline {
			return nil, status.Errorf(codes.FailedPrecondition, "volume %s grows only between pods",
				r.GetVolumeId())
		}
		err = n.volumes.grow(r.GetVolumeId(), have)
	}

	if err != nil {
		return nil, failure(err)
	}

	return &csi.NodeExpandVolumeResponse{CapacityBytes: have.Size}, nil
}
