"""The models titan-pretrain trains."""
